-- Requests that webhooks refused, the newest of each webhook: written together, read by people.
CREATE TABLE hook_refusal (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    webhook  TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    code     TEXT    NOT NULL,
    status   INTEGER NOT NULL,
    message  TEXT    NOT NULL,
    remote   TEXT    NOT NULL,
    excerpt  TEXT    NOT NULL,
    tenant   TEXT    NOT NULL,
    queue    TEXT    NOT NULL
) STRICT;
CREATE INDEX hook_refusal_webhook ON hook_refusal (webhook, position);
