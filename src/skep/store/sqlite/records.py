"""Receipts, entities, applied specs, endpoints and runs of pipelines."""

from __future__ import annotations

from skep.store.sqlite import apps, entities, pipelines, receipts
from skep.store.sqlite.database import Part, read, written


class SqliteRecords(Part):
    """Implements `skep.store.protocol.records.RecordStore`."""

    receipts = read(receipts.receipts)
    list_entities = read(entities.list_entities)
    entity_types = read(entities.entity_types)
    entity_events = read(entities.entity_events)
    entities = read(entities.entities)

    put_app = written(apps.put_app)
    delete_app = written(apps.delete_app)
    apps_revision = read(apps.apps_revision)

    report_endpoint = written(apps.report_endpoint)
    endpoints = read(apps.endpoints)
    reset_endpoint = written(apps.reset_endpoint)
    apps = read(apps.apps)

    put_run = written(pipelines.put_run)
    runs = read(pipelines.runs)
    run = read(pipelines.run)
