-- Requests that webhooks refused, the newest of each webhook: written together, read by people.
CREATE TABLE hook_refusal (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    status   integer NOT NULL,
    webhook  text COLLATE "C" NOT NULL,
    code     text NOT NULL,
    message  text NOT NULL,
    remote   text NOT NULL,
    excerpt  text NOT NULL,
    tenant   text NOT NULL,
    queue    text NOT NULL
);
CREATE INDEX hook_refusal_by_webhook ON hook_refusal (webhook, position);
