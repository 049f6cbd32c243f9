// A program with the AWS SDK for JavaScript v3, as its users write it. It prints what it saw as one JSON object.
import {
  ChangeMessageVisibilityCommand, CreateQueueCommand, DeleteMessageBatchCommand, DeleteMessageCommand, GetQueueAttributesCommand,
  ListQueuesCommand, QueueDoesNotExist, ReceiveMessageCommand, SQSClient, SendMessageBatchCommand, SendMessageCommand,
  GetQueueUrlCommand, paginateListQueues,
} from "@aws-sdk/client-sqs";

const [endpoint, accessKeyId, secretAccessKey] = process.argv.slice(2);
const sqs = new SQSClient({ endpoint, region: "eu-west-1", credentials: { accessKeyId, secretAccessKey } });
const seen = {};

const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "js.fifo", Attributes: { FifoQueue: "true" } }));
await sqs.send(new SendMessageCommand({
  QueueUrl, MessageBody: "grün", MessageGroupId: "a", MessageDeduplicationId: "1",
  MessageAttributes: { raw: { DataType: "Binary", BinaryValue: new Uint8Array([0, 255]) } },
}));
const batch = await sqs.send(new SendMessageBatchCommand({
  QueueUrl, Entries: [2, 3].map((n) => ({ Id: `${n}`, MessageBody: `${n}`, MessageGroupId: "a", MessageDeduplicationId: `${n}` })),
}));
seen.sent = batch.Successful.length;
const { Messages } = await sqs.send(new ReceiveMessageCommand({
  QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 1, MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"],
}));
seen.bodies = Messages.map((one) => one.Body);
seen.raw = Array.from(Messages[0].MessageAttributes.raw.BinaryValue);
seen.count = Messages[0].Attributes.ApproximateReceiveCount;
await sqs.send(new DeleteMessageCommand({ QueueUrl, ReceiptHandle: Messages[0].ReceiptHandle }));
await sqs.send(new ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle: Messages[1].ReceiptHandle, VisibilityTimeout: 0 }));
const again = await sqs.send(new ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 5 }));
seen.again = again.Messages.map((one) => one.Body);
const deleted = await sqs.send(new DeleteMessageBatchCommand({
  QueueUrl, Entries: again.Messages.map((one, n) => ({ Id: `${n}`, ReceiptHandle: one.ReceiptHandle })),
}));
seen.deleted = deleted.Successful.length;
seen.attributes = (await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["FifoQueue"] }))).Attributes;
seen.listed = [];
for await (const page of paginateListQueues({ client: sqs, pageSize: 1 }, {})) seen.listed.push(...(page.QueueUrls ?? []));
seen.first = (await sqs.send(new ListQueuesCommand({ QueueNamePrefix: "none" }))).QueueUrls ?? [];
try {
  await sqs.send(new GetQueueUrlCommand({ QueueName: "none" }));
} catch (error) {
  seen.missing = error instanceof QueueDoesNotExist;
}
console.log(JSON.stringify(seen));
