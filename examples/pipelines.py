# %% [markdown]
# # From a queue to tables
# The pipelines are functions from frames to frames. Here they run beside a server that is started for the occasion; with one of
# your own, leave out the first cell and set `url`. Run this file as a script, or cell by cell in an editor that knows `# %%`.

# %% All that is used
import sys

from pyspark.sql import functions as F

import skep
from skep.spark.options import ServerConnection
from skep.spark.pipelines.archive import archive, with_body
from skep.spark.pipelines.dead_letters import dead_letter_groups
from skep.spark.pipelines.journeys import journeys
from skep.spark.pipelines.metrics import metrics
from skep.spark.running.inputs import Inputs
from skep.spark.session import start_session
from skep.testing.server import running_server

# %% A server with something in it
server = running_server()
url = server.__enter__().url
client = skep.Client(url)

for number in range(1, 21):
    amount = f"{number},00" if number % 5 == 0 else f"{number}.00"
    client.push("orders", {"number": number, "amount": amount}, partition=f"customer-{number % 4}")
while messages := client.pop("orders", group="billing", batch=10):
    for message in messages:
        order = message.json()
        if "," in order["amount"]:
            client.reject(message, error=f"cannot read the amount {order['amount']!r}")
            continue
        with client.transaction() as tx:
            tx.push("invoices", order, partition=message.partition, trace_id=message.trace_id)
            tx.ack(message)

# %% A session with the settings that make small batches quick

spark = start_session("example", master="local[2]", quick_start=True)

# %% A queue is a table
orders = spark.read.format("skep").option("url", url).load("orders")
orders.select("partition", "seq", "payload").orderBy("seq").show(3, truncate=False)

# %% As the lake has it: the exact payload, and a body that can be asked

numbers = with_body(archive(orders)).select(F.try_variant_get("body", "$.number", "int").alias("number"))
total = numbers.agg(F.sum("number")).collect()[0][0]

# %% What happened to the messages, from the history of their leases

inputs = Inputs(spark, ServerConnection((url,), "default", None, 60.0), ["orders", "invoices"])
happened, letters = inputs.activity(), inputs.dead_letters()
figures = metrics(happened.messages, happened.leases, letters, window=None)
figures.select("queue", "group", "pushed", "settled", "dead", "total_p95_seconds").show()

# %% Where traces went
counted = journeys(happened.messages, happened.leases).groupBy("state").count()
states = {row["state"]: row["count"] for row in counted.collect()}

# %% Why some were given up on, and what they have in common

[group] = dead_letter_groups(letters, orders).collect()

# %% The end
sys.stdout.write(
    f"sum of numbers {total}; journeys {sorted(states.items())}; "
    f"{group['letters']} letters whose {group['fields'][0]['field']} looks like {group['fields'][0]['value']}\n"
)
client.close()
server.__exit__(None, None, None)
