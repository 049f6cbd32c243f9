"""The wire format: the requests and answers of the HTTP API as structs, shared by server and client.

Names are camelCase on the wire. Some have underscores: messages in the answer to a push, answers of webhooks, `/admin`, the metrics, and
the settings of a queue, which have one spelling everywhere. Instants are RFC 3339 texts in UTC, ids are UUID texts, and payloads pass
through unchanged, as the JSON that was pushed.
"""
