"""The agent card: facts of the agent and settings of the user go in, the JSON of a card comes out."""
