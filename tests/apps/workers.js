/* Node.js: worker threads that share memory, exchange messages, and keep libuv's thread pool busy.
 *
 *     node workers.js THREADS ROUNDS
 *
 * Each of THREADS workers adds 1 to a shared plain number ROUNDS times, under a lock made of Atomics.wait and
 * Atomics.notify; sends ROUNDS / 10 messages that come back; and lets the pool (UV_THREADPOOL_SIZE threads) compress
 * and hash. Prints one line of key=value numbers; whether they are right is judged by the caller:
 *
 *     part=node threads=T counter=C expected=E messages=M echoes=F sum=S expected_sum=U wrong=W
 *
 * counter must equal expected: the plain number; echoes must equal messages, and sum the sum of what was sent; wrong,
 * results of the pool that differ from what the same thread computes itself, must be 0.
 */
"use strict";
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const { promisify } = require("util");
const crypto = require("crypto");
const zlib = require("zlib");

const FREE = 0, HELD = 1, AWAITED = 2;
const POOL_TASKS = 24;

function acquire(words) {
    if (Atomics.compareExchange(words, 0, FREE, HELD) === FREE) return;
    while (Atomics.exchange(words, 0, AWAITED) !== FREE) Atomics.wait(words, 0, AWAITED);
}

function release(words) {
    if (Atomics.exchange(words, 0, FREE) === AWAITED) Atomics.notify(words, 0, 1);
}

/* Results of the pool against those of this thread. */
async function poolTasks(number) {
    const deflate = promisify(zlib.deflate), pbkdf2 = promisify(crypto.pbkdf2);
    let wrong = 0;
    const task = async (index) => {
        const text = Buffer.from(`${number}:${index}:`.repeat(2000));
        const packed = await deflate(text);
        if (!zlib.inflateSync(packed).equals(text)) wrong++;
        const hashed = await pbkdf2(text, "salt", 20, 32, "sha256");
        if (!hashed.equals(crypto.pbkdf2Sync(text, "salt", 20, 32, "sha256"))) wrong++;
    };
    await Promise.all(Array.from({ length: POOL_TASKS }, (_, index) => task(index)));
    return wrong;
}

async function work() {
    const { words, rounds, number, tasks } = workerData;
    for (let i = 0; i < rounds; i++) {
        acquire(words);
        words[1] = words[1] + 1;
        release(words);
    }
    let echoes = 0, sum = 0;
    const messages = rounds / 10;
    const echoed = new Promise((resolve) => {
        parentPort.on("message", (value) => {
            sum += value;
            if (++echoes === messages) resolve();
        });
    });
    for (let i = 0; i < messages; i++) parentPort.postMessage({ value: number * messages + i });
    await echoed;
    const wrong = tasks ? await poolTasks(number) : 0;
    parentPort.postMessage({ done: true, echoes, sum, wrong });
    parentPort.close();
}

function main() {
    const [threads, rounds] = process.argv.slice(2).map(Number);
    if (!(threads > 0 && rounds >= 10 && rounds % 10 === 0)) {
        console.error("usage: workers.js THREADS ROUNDS (a multiple of 10)");
        process.exit(2);
    }
    const words = new Int32Array(new SharedArrayBuffer(8));
    const total = { echoes: 0, sum: 0, wrong: 0 };
    let running = threads;
    for (let number = 0; number < threads; number++) {
        const worker = new Worker(__filename, { workerData: { words, rounds, number, tasks: number < 8 } });
        worker.on("error", (error) => { throw error; });
        worker.on("message", (message) => {
            if (!message.done) return worker.postMessage(message.value);
            for (const key of Object.keys(total)) total[key] += message[key];
        });
        worker.on("exit", (code) => {
            if (code !== 0) process.exit(1);
            if (--running > 0) return;
            const messages = threads * rounds / 10;
            console.log(`part=node threads=${threads} counter=${words[1]} expected=${threads * rounds}` +
                ` messages=${messages} echoes=${total.echoes} sum=${total.sum}` +
                ` expected_sum=${messages * (messages - 1) / 2} wrong=${total.wrong}`);
        });
    }
}

if (isMainThread) main(); else work();
