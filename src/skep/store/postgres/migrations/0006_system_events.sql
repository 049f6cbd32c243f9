-- What servers tell each other: changes that they may hold in memory, in the order in which they were committed.

CREATE TABLE system_event (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       bigint NOT NULL,
    kind     text NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    name     text COLLATE "C" NOT NULL
);
