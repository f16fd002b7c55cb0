"""Files in parts of messages and artifacts: their media types, and their classes in Pydantic AI.

Media types and files of Pydantic AI come in. Classes of files and parts go out.
"""
