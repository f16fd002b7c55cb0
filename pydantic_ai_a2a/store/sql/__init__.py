"""The schema and the statements of all SQL backends, as transactions that a driver executes.

Values of the ports come in. Statements go to the driver one by one; rows come back, and the result goes out.
"""
