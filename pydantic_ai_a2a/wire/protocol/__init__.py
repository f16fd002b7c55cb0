"""The JSON of each version of A2A, to the vocabulary (`types`) and back.

Bodies and stored values come in. Params and JSON go out. `operations` is the table of operations, `versions` picks the
codec of a request, `codec` is the interface of codecs, and each codec is a module of its own. Clients use the codecs
too: `sent_params` writes their requests, and the modules `received_...` read what remote agents answer.
"""
