// The workloads with BullMQ. It reads one request per line from standard input and writes replies, one per line, to
// standard output. The workloads are those of ../../internal/benchmark, with its configurations and results as JSON,
// where durations are in nanoseconds, and with the same payloads: number and due time in microseconds, 16 hexadecimal
// digits each, followed by noise.
import { createInterface } from 'node:readline';
import { Queue, Worker } from 'bullmq';
import IORedis from 'ioredis';

const NAME = 'bench';
const [host, port] = process.argv[2].split(':');
const connect = () => new IORedis({ host, port: Number(port), maxRetriesPerRequest: null });
const connections = [connect()];
const queue = new Queue(NAME, { connection: connections[0], defaultJobOptions: { removeOnComplete: true } });

const BULK = 1000;
const FILLERS = 4;
const HOUR = 3600_000;

const now = () => performance.timeOrigin + performance.now(); // fractional milliseconds
const toMillis = (ns) => ns / 1e6;
const toNanos = (ms) => Math.round(ms * 1e6);
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const hex = (n) => n.toString(16).padStart(16, '0');

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const noise = Array.from({ length: 1 << 16 }, () => alphabet[Math.floor(Math.random() * 64)]).join('');

function payload(number, due, size) {
  let text = hex(number) + hex(due * 1000);
  while (text.length < size) {
    const at = Math.floor(Math.random() * (noise.length - 1));
    text += noise.slice(at, at + size - text.length);
  }
  return text;
}

// job returns a job for addBulk. due is in whole milliseconds; 0 means at once.
function job(number, due, size) {
  return { name: NAME, data: payload(number, due, size), opts: due ? { delay: Math.max(0, due - Date.now()) } : {} };
}

const inAnHour = () => Math.floor(Date.now() + HOUR + Math.random() * HOUR);
const atOnce = () => 0;

async function inParallel(n, f) {
  await Promise.all(Array.from({ length: n }, f));
}

async function fill(n, size, due) {
  let next = 0;
  await inParallel(FILLERS, async () => {
    while (next < n) {
      const first = next;
      next += BULK;
      const jobs = [];
      for (let i = first; i < Math.min(n, first + BULK); i++) jobs.push(job(i, due(), size));
      await queue.addBulk(jobs);
    }
  });
}

class Tally {
  constructor(n) {
    this.seen = new Uint8Array(n);
    this.handled = this.doubles = this.early = 0;
    this.late = [];
    this.starts = [];
    this.all = new Promise((done) => { this.done = done; });
  }

  mark(text) {
    const at = now();
    const number = parseInt(text.slice(0, 16), 16);
    const due = parseInt(text.slice(16, 32), 16) / 1000;
    if (!(number < this.seen.length)) return;
    if (this.seen[number]++) {
      this.doubles++;
      return;
    }
    this.starts.push(at);
    if (due) {
      if (at < due) this.early++;
      this.late.push(at - due);
    }
    if (++this.handled === this.seen.length) {
      this.finished = at;
      this.done();
    }
  }
}

function work(handlers, handle, limiter) {
  const connection = connect();
  connections.push(connection);
  return new Worker(NAME, async (j) => { handle(j.data); }, { connection, concurrency: handlers, limiter });
}

async function left() {
  const counts = await queue.getJobCounts('wait', 'active', 'delayed', 'prioritized', 'failed', 'completed');
  return Object.values(counts).reduce((a, b) => a + b, 0);
}

// handleAll runs workers until the tally is complete, or the limit has passed since begin.
async function handleAll({ Messages, Handlers, Limit, Rate, Burst, Workers }, begin) {
  const tally = new Tally(Messages);
  begin ??= now();
  const limiter = Rate ? { max: Burst, duration: 1000 * Burst / Rate } : undefined;
  const workers = Array.from({ length: Workers || 1 }, () => work(Handlers, (text) => tally.mark(text), limiter));
  await Promise.race([tally.all, sleep(begin + toMillis(Limit) - now())]);
  const took = (tally.finished ?? now()) - begin;
  await Promise.all(workers.map((worker) => worker.close()));
  return {
    Starts: Rate ? tally.starts.map((at) => toNanos(at - begin)).sort((a, b) => a - b) : [],
    Messages, Handled: tally.handled, Doubles: tally.doubles, Early: tally.early, Left: await left(),
    Took: toNanos(took), Settled: toNanos(now() - begin),
  };
}

const operations = {
  async send({ Messages, Goroutines, Batch, Size, Limit }) {
    let next = 0;
    let sent = 0;
    const batch = Math.max(1, Batch);
    const begin = now();
    await inParallel(Goroutines, async () => {
      while (next < Messages && (!Limit || now() - begin < toMillis(Limit))) {
        const first = next;
        const n = Math.min(batch, Messages - first);
        next += n;
        if (batch > 1) {
          await queue.addBulk(Array.from({ length: n }, (_, i) => job(first + i, inAnHour(), Size)));
        } else {
          const { name, data, opts } = job(first, inAnHour(), Size);
          await queue.add(name, data, opts);
        }
        sent += n;
      }
    });
    return { Messages: sent, Took: toNanos(now() - begin) };
  },

  async fill({ Messages, Size }) {
    await fill(Messages, Size, inAnHour);
    return {};
  },

  async drain(config) {
    if (config.Herd) return herd(config);
    await fill(config.Messages, config.Size, atOnce);
    reply({ event: 'filled' });
    return handleAll(config);
  },

  async lateness({ Rate, For, Longest, Size, Handlers, Limit }) {
    const n = Math.round(Rate * toMillis(For) / 1000);
    const tally = new Tally(n);
    const worker = work(Handlers, (text) => tally.mark(text));
    const begin = now();
    const sends = [];
    let sent = 0;
    while (sends.length < n) {
      await sleep(1);
      for (const target = Math.min(n, (now() - begin) * Rate / 1000); sends.length < Math.floor(target);) {
        const { name, data, opts } = job(sends.length, Math.ceil(now() + Math.random() * toMillis(Longest)), Size);
        sends.push(queue.add(name, data, opts).then(() => { sent++; }));
      }
    }
    await Promise.all(sends);
    const took = now() - begin;
    await Promise.race([tally.all, sleep(toMillis(Longest + Limit))]);
    await worker.close();
    return {
      Samples: tally.late.sort((a, b) => a - b).map(toNanos), Sent: sent, Took: toNanos(took),
      Doubles: tally.doubles, Early: tally.early, Missing: sent - tally.late.length,
    };
  },

  async cpu() {
    const used = process.cpuUsage();
    return (used.user + used.system) * 1000;
  },

  async idle({ Handlers }) {
    await work(Handlers, () => {}).waitUntilReady();
    return {};
  },
};

// herd fills the queue with jobs due in the same millisecond, and handles them with a worker that waits for them.
async function herd(config) {
  const trial = Math.max(1, Math.floor(config.Messages / 50));
  const begin = now();
  await fill(trial, config.Size, () => Math.floor(begin) + 24 * HOUR);
  const due = Math.floor(now() + 2 * ((now() - begin) * config.Messages / trial) + 2000);
  await fill(config.Messages, config.Size, () => due);
  if (now() > due - 1000) {
    throw new Error('sending the herd took longer than the trial predicted: ' +
      'the machine is too busy, or the herd too large');
  }
  await sleep(due - 1000 - now());
  reply({ event: 'filled' });
  const result = await handleAll(config, due);
  result.Left -= trial;
  return result;
}

function reply(value) {
  process.stdout.write(JSON.stringify(value) + '\n');
}

await queue.waitUntilReady();
reply({ event: 'began' });
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    reply({ event: 'done', result: await operations[request.op](request.config) });
  } catch (error) {
    reply({ event: 'failed', error: String(error?.message ?? error) });
  }
}
process.exit(0);
