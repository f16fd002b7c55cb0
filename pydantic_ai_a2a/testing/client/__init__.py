"""Helps to test agents: a client for apps in the process, scripted answers, recordings and snapshots."""

from .answers import Answers
from .client import A2ATestClient
from .dump import dump
from .fixtures import ClientFactory, ServerFactory
from .recording import Exchange, Recording, record

__all__ = (
    'A2ATestClient',
    'Answers',
    'ClientFactory',
    'Exchange',
    'Recording',
    'ServerFactory',
    'dump',
    'record',
)
