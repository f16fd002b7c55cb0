"""Helps to test agents: a client for apps in the process, scripted answers, recordings and snapshots.

Agents and apps go in. The results and the JSON that clients get come out, for the assertions of a test.
"""

from .answers import Answers
from .client import A2ATestClient, record
from .fixtures import ClientFactory, ServerFactory
from .recordings import Exchange, Recording
from .snapshots import dump

__all__ = ['A2ATestClient', 'Answers', 'ClientFactory', 'Exchange', 'Recording', 'ServerFactory', 'dump', 'record']
