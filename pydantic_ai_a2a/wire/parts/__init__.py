"""Files in parts of messages and artifacts: their media types, and their classes in Pydantic AI."""
