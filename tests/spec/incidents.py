"""A spec of the shape that the first sketch of the language had, for tests that need one."""

INCIDENTS = """\
app IncidentDesk {
  // what comes in from outside
  queue Incoming {
    message_type {
      payload: json
      headers: map<string, string>
      source_ip: string
      received_at: time
    }

    ordering: fifo

    retention {
      max_age_seconds: 86400    // a day
      max_depth: 10000          // refuse beyond that
    }

    delivery {
      max_attempts: 5
      initial_backoff_ms: 1000   // 1s, 2s, 4s, 8s
      max_backoff_ms: 60000      // never more than a minute
      dead_letter_queue: IncomingDead
    }

    // becomes a command
    map_to: command Incident.Open {
      title: payload.incident.title
      severity: payload.incident.urgency == "high" ? "critical" : "high"
      source: "pagerduty"
      external_id: payload.incident.id
    }
  }

  queue IncomingDead {
    message_type {
      original_message: json
      failed_at: time
      error: string
      attempts: int
    }
    retention { max_age_seconds: 604800 }  // a week to look at them
    // no map_to: replayed by hand
  }

  // goes through the queue
  webhook Alerts {
    queue: Incoming  // not at once
    verify_hmac {
      header: "X-PagerDuty-Signature"
      secret_env: "ALERTS_SECRET"
    }
  }
}
"""
