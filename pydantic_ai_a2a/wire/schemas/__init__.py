"""JSON Schemas: checks of schemas of other parties, and of values by them."""
