// A program with the AWS SDK for JavaScript v2, which speaks the query protocol where its model says so.
import AWS from "aws-sdk";

const [endpoint, accessKeyId, secretAccessKey] = process.argv.slice(2);
const sqs = new AWS.SQS({ endpoint, region: "eu-west-1", accessKeyId, secretAccessKey, maxRetries: 0 });
const seen = {};

const { QueueUrl } = await sqs.createQueue({ QueueName: "v2", Attributes: { VisibilityTimeout: "60" }, tags: { a: "b" } }).promise();
await sqs.sendMessage({
  QueueUrl, MessageBody: "<one>", MessageAttributes: { n: { DataType: "Number", StringValue: "7" } },
}).promise();
const batch = await sqs.sendMessageBatch({ QueueUrl, Entries: [{ Id: "2", MessageBody: "two" }] }).promise();
seen.sent = batch.Successful.length;
const { Messages } = await sqs.receiveMessage({
  QueueUrl, MaxNumberOfMessages: 10, MessageAttributeNames: ["All"], AttributeNames: ["All"],
}).promise();
seen.bodies = Messages.map((one) => one.Body).sort();
seen.n = Messages.filter((one) => one.MessageAttributes)[0].MessageAttributes.n.StringValue;
const deleted = await sqs.deleteMessageBatch({
  QueueUrl, Entries: Messages.map((one, n) => ({ Id: `${n}`, ReceiptHandle: one.ReceiptHandle })),
}).promise();
seen.deleted = deleted.Successful.length;
seen.tags = (await sqs.listQueueTags({ QueueUrl }).promise()).Tags;
seen.timeout = (await sqs.getQueueAttributes({ QueueUrl, AttributeNames: ["All"] }).promise()).Attributes.VisibilityTimeout;
seen.missing = await sqs.getQueueUrl({ QueueName: "none" }).promise().then(() => "", (error) => error.code);
seen.protocol = sqs.api.protocol;
console.log(JSON.stringify(seen));
