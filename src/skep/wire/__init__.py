"""What goes over the wire: the requests and answers of the HTTP API as structs, shared by server and client.

Names are camelCase on the wire, as in the seeds of the API; what they wrote with underscores (the answer to a push, `/admin`)
and the settings of a queue, which have one spelling everywhere, stay so. Instants are RFC 3339 texts in UTC, ids are UUID texts,
payloads pass through as the JSON they came as.
"""
