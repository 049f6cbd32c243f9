"""The wire format: the requests and answers of the HTTP API as structs, shared by server and client.

Names are camelCase on the wire. Some have underscores: the answer to a push, `/admin`, and the settings of a queue, which have
one spelling everywhere. Instants are RFC 3339 texts in UTC, ids are UUID texts,
payloads pass through unchanged, as the JSON that was pushed.
"""
