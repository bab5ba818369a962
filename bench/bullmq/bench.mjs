// The workloads with BullMQ. It reads one request per line from standard input and writes replies, one per line, to
// standard output. The workloads are those of ../../internal/benchmark, with the same payloads: number and due time in
// microseconds, 16 hexadecimal digits each, followed by noise.
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

function work(handlers, handle) {
  const connection = connect();
  connections.push(connection);
  return new Worker(NAME, async (j) => { handle(j.data); }, { connection, concurrency: handlers });
}

async function left() {
  const counts = await queue.getJobCounts('wait', 'active', 'delayed', 'prioritized', 'failed', 'completed');
  return Object.values(counts).reduce((a, b) => a + b, 0);
}

// handleAll runs workers until the tally is complete, or the limit has passed since begin.
async function handleAll(request, begin) {
  const tally = new Tally(request.messages);
  begin ??= now();
  const worker = work(request.handlers, (text) => tally.mark(text));
  await Promise.race([tally.all, sleep(begin + request.limit_ms - now())]);
  const took = (tally.finished ?? now()) - begin;
  await worker.close();
  return {
    handled: tally.handled, doubles: tally.doubles, early: tally.early, left: await left(),
    took_ms: took, settled_ms: now() - begin,
  };
}

const operations = {
  async send({ messages, senders, batch, size, limit_ms }) {
    let next = 0;
    let sent = 0;
    const begin = now();
    await inParallel(senders, async () => {
      while (next < messages && (!limit_ms || now() - begin < limit_ms)) {
        const first = next;
        const n = Math.min(batch, messages - first);
        next += n;
        if (batch > 1) {
          await queue.addBulk(Array.from({ length: n }, (_, i) => job(first + i, inAnHour(), size)));
        } else {
          const { name, data, opts } = job(first, inAnHour(), size);
          await queue.add(name, data, opts);
        }
        sent += n;
      }
    });
    return { messages: sent, took_ms: now() - begin };
  },

  async fill({ messages, size }) {
    await fill(messages, size, inAnHour);
    return {};
  },

  async drain(request) {
    await fill(request.messages, request.size, atOnce);
    reply({ event: 'filled' });
    return handleAll(request);
  },

  async herd(request) {
    const trial = Math.max(1, Math.floor(request.messages / 50));
    let begin = now();
    await fill(trial, request.size, () => Math.floor(begin) + 24 * HOUR);
    const due = Math.floor(now() + 2 * ((now() - begin) * request.messages / trial) + 2000);
    await fill(request.messages, request.size, () => due);
    if (now() > due - 1000) {
      throw new Error('sending the herd took longer than the trial predicted: ' +
        'the machine is too busy, or the herd too large');
    }
    await sleep(due - 1000 - now());
    reply({ event: 'filled' });
    const result = await handleAll(request, due);
    result.left -= trial;
    return result;
  },

  async lateness({ rate, for_ms, longest_ms, size, handlers, limit_ms }) {
    const n = Math.floor(rate * for_ms / 1000);
    const tally = new Tally(n);
    const worker = work(handlers, (text) => tally.mark(text));
    const begin = now();
    const sends = [];
    let sent = 0;
    while (sends.length < n) {
      await sleep(1);
      for (const target = Math.min(n, (now() - begin) * rate / 1000); sends.length < Math.floor(target);) {
        const { name, data, opts } = job(sends.length, Math.ceil(now() + Math.random() * longest_ms), size);
        sends.push(queue.add(name, data, opts).then(() => { sent++; }));
      }
    }
    await Promise.all(sends);
    const took = now() - begin;
    await Promise.race([tally.all, sleep(longest_ms + limit_ms)]);
    await worker.close();
    return {
      messages: sent, took_ms: took, doubles: tally.doubles, early: tally.early,
      late_ms: tally.late.map((ms) => Math.round(ms * 1000) / 1000),
    };
  },

  async cpu() {
    const used = process.cpuUsage();
    return { cpu_us: used.user + used.system };
  },

  async idle({ handlers }) {
    await work(handlers, () => {}).waitUntilReady();
    return {};
  },
};

function reply(value) {
  process.stdout.write(JSON.stringify(value) + '\n');
}

await queue.waitUntilReady();
reply({ event: 'began' });
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  try {
    reply({ event: 'done', ...(await operations[request.op](request)) });
  } catch (error) {
    reply({ event: 'failed', error: String(error?.message ?? error) });
  }
}
process.exit(0);
