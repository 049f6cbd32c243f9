// What users of Queen's client do: its calls go to the URL of the arguments, with the bearer token beside it. Prints what it saw.
import { Queen } from 'queen-mq'

const [url, bearerToken] = process.argv.slice(2)
const queen = new Queen({ url, bearerToken, retryAttempts: 1, handleSignals: false })
const seen = {}
const data = messages => messages.map(message => message.data)
const names = items => items.map(name => ({ data: name, transactionId: name }))
const take = (queue, batch = 10) => queen.queue(queue).batch(batch).wait(false)
const told = promise => promise.then(() => 'nothing', error => error.message)

async function queues() {
  const made = await queen.queue('q').namespace('shop').task('bill').config({ leaseTime: 60, retryLimit: 1, maxSize: 100 }).create()
  seen.configured = made.configured
  const first = await queen.queue('q').partition('p').push(names(['a', 'b']))
  seen.pushed = first.map(one => one.status)
  seen.again = []
  await queen.queue('q').partition('p').push(names(['b', 'c']))
    .onSuccess(items => seen.again.push(['new', ...items.map(item => item.transactionId)]))
    .onDuplicate(items => seen.again.push(['duplicate', ...items.map(item => item.transactionId)]))
}

async function acks() {
  const [a, b, c] = await take('q').partition('p').pop()
  seen.popped = data([a, b, c])
  seen.renewed = (await queen.renew([a, b, c])).map(one => one.success && new Date(one.newExpiresAt) > new Date())
  seen.completed = (await queen.ack(a)).success
  seen.batch = (await queen.ack([{ ...b, _status: 'retry' }, { ...c, _status: true }])).results.map(one => one.success)
  seen.late = (await queen.ack(a)).error
  const [retried] = await take('q').pop()
  seen.retried = [retried.data, retried.retryCount]
  seen.failed = await queen.ack(retried, false, { error: 'no stock' }).then(one => [one.success, one.dlq])
  const letters = await queen.queue('q').dlq().limit(5).get()
  seen.letters = [letters.total, ...letters.messages.map(letter => [letter.transactionId, letter.data, letter.errorMessage])]
  seen.sentBack = (await queen.admin.retryMessage(letters.messages[0].partitionId, 'b')).success
  const [back] = await take('q').pop()
  seen.toTheDead = await queen.ack(back, 'dlq').then(one => [one.success, one.dlq])
}

async function transactions() {
  await queen.queue('in').push(names(['first', 'second']))
  const [one, two] = await take('in').pop()
  const { success } = await queen.transaction().ack(one).queue('out').partition('p').push([{ data: 'moved' }]).commit()
  await queen.ack(two)
  const twice = await told(queen.transaction().ack(two).queue('out').push([{ data: 'never' }]).commit())
  seen.transaction = [success, twice, data(await take('out').pop())]
}

async function groups() {
  const read = async (group, options = {}) => {
    let asked = take('log').group(group)
    for (const [name, value] of Object.entries(options)) asked = asked[name](value)
    const messages = await asked.pop()
    await queen.ack(messages, true, { group })
    return data(messages)
  }
  const anHourAgo = new Date(Date.now() - 3_600_000).toISOString()
  await queen.queue('log').push(names(['1', '2']))
  seen.all = await read('all')
  seen.new = await read('new', { subscriptionMode: 'new' })
  await queen.queue('log').push(names(['3']))
  seen.newer = await read('new')
  seen.since = await read('since', { subscriptionFrom: anHourAgo })
  seen.moved = [(await queen.updateConsumerGroupTimestamp('all', anHourAgo)).success, await read('all')]
  await queen.updateConsumerGroupTimestamp('all', anHourAgo)
  seen.sought = [(await queen.admin.seekConsumerGroup('all', 'log', { toEnd: true })).success, await read('all')]
  seen.forgotten = [(await queen.deleteConsumerGroup('since')).success, await read('since')]
}

async function consumers() {
  for (const partition of ['a', 'b', 'c']) {
    await queen.queue('work').partition(partition).push([0, 1, 2, 3].map(number => ({ data: number })))
  }
  const order = { a: [], b: [], c: [] }
  const traced = []
  await queen.queue('work').concurrency(3).batch(2).each().limit(4).renewLease(true, 1_000).consume(async message => {
    order[message.partition].push(message.data)
    traced.push((await message.trace({ traceName: 'work', data: { at: message.data } })).success)
  })
  seen.order = order
  seen.traced = [traced.length, traced.every(Boolean)]
  seen.traces = (await queen.admin.getTracesByName('work')).total

  await queen.queue('hard').config({ retryLimit: 2 }).create()
  await queen.queue('hard').push(names(['bad']))
  const tries = []
  await queen.queue('hard').limit(3).each().consume(async message => {
    tries.push(message.retryCount)
    throw new Error('never works')
  })
  seen.tries = tries
  seen.error = (await queen.queue('hard').dlq().get()).messages[0].errorMessage

  const stopping = new AbortController()
  const waiting = queen.queue('later').group('g').timeoutMillis(30_000).consume(async ([message]) => {
    seen.later = message.data
    stopping.abort()
  }, { signal: stopping.signal })
  await queen.queue('later').push([{ data: 'here' }])
  await waiting
}

async function many() {
  const buffer = { messageCount: 10, timeMillis: 60_000 }
  for (const number of [0, 1, 2, 3, 4]) await queen.queue('buffered').buffer(buffer).push({ data: number })
  seen.unsent = queen.getBufferStats().totalBufferedMessages
  await queen.flushAllBuffers()
  seen.buffered = [data(await take('buffered').pop()), queen.getBufferStats().totalBufferedMessages]
  for (const partition of ['a', 'b', 'c']) await queen.queue('wide').partition(partition).push([{ data: partition }])
  const found = await take('wide').partitions(3).pop()
  seen.wide = [data(found).sort(), new Set(found.map(message => message.leaseId)).size, (await queen.renew(found)).length]
  await queen.queue('q').push(names(['labelled']))
  seen.namespace = data(await queen.queue().namespace('shop').wait(false).pop())
  seen.once = [data(await take('buffered').group('once').autoAck(true).pop()), data(await take('buffered').group('once').pop())]
}

async function admin() {
  const { admin } = queen
  seen.queues = (await admin.listQueues({ search: 'buffered' })).queues.map(queue => queue.name)
  seen.queue = (await admin.getQueue('q')).namespace
  seen.namespaces = (await admin.getNamespaces()).namespaces.map(one => one.name)
  const [message] = (await admin.listMessages({ queue: 'wide', limit: 1 })).messages
  seen.message = (await admin.getMessage(message.partitionId, message.transactionId)).data
  seen.groups = (await admin.listConsumerGroups()).some(one => one.name === 'new')
  seen.health = (await admin.health()).status
  seen.maintenance = await admin.getMaintenanceMode().then(mode => mode.maintenanceMode, error => error.message)
  seen.cleared = (await admin.clearQueue('buffered')).cleared
  const looks = ['getOverview', 'getTasks', 'getTraceNames', 'getStatus', 'getQueueStats', 'getAnalytics', 'getLaggingConsumers']
  for (const look of [...looks, 'refreshConsumerStats', 'metrics']) await admin[look]()
  seen.partitions = (await admin.getPartitions({ queue: 'wide' })).partitions.map(partition => partition.name).sort()
  seen.deleted = (await queen.queue('q').delete()).deleted
  const stranger = new Queen({ url, bearerToken: 'skep_wrong', retryAttempts: 1, handleSignals: false })
  seen.stranger = await told(stranger.queue('q').push([{ data: 1 }]))
  await stranger.close()
}

for (const part of [queues, acks, transactions, groups, consumers, many, admin]) await part()
await queen.close()
console.log(JSON.stringify(seen))
