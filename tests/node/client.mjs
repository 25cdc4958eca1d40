// Connects one of the official clients and calls its methods.
//
//   node client.mjs URL TOKEN CLIENT HEADERS
//
// CLIENT is sdk (@modelcontextprotocol/sdk 1.x), or legacy, auto or 2026-07-28 (@modelcontextprotocol/client 2.x in
// that mode). HEADERS, a JSON object, are sent with every request, whatever the client itself would send under these
// names.
//
// The first line of stdout says what was agreed on. Then each line of stdin is a list of calls, [[method, params], ...],
// which are made at once, and each line of stdout is the list of what came of them.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as SDKClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as SDKTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { createInterface } from "node:readline";

const INFO = { name: "django-mcp-idem-tests", version: "1" };
const CAPABILITIES = { elicitation: {} };
const answerQuestion = () => ({ action: "accept", content: { name: "Alice" } });

const [url, token, kind, headers] = process.argv.slice(2);
const options = { requestInit: { headers: { Authorization: `Bearer ${token}` } }, fetch: fetchWithHeaders };

function fetchWithHeaders(url, init) {
  const all = new Headers(init.headers);
  for (const [name, value] of Object.entries(JSON.parse(headers))) all.set(name, value);
  return fetch(url, { ...init, headers: all });
}

function makeSDKClient() {
  const client = new SDKClient(INFO, { capabilities: CAPABILITIES });
  client.setRequestHandler(ElicitRequestSchema, answerQuestion);
  return [client, new SDKTransport(new URL(url), options)];
}

function makeClient() {
  const mode = /^\d/.test(kind) ? { pin: kind } : kind;
  const client = new Client(INFO, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
  client.setRequestHandler("elicitation/create", answerQuestion);
  return [client, new StreamableHTTPClientTransport(new URL(url), options)];
}

async function call([method, params]) {
  try {
    return { result: await client[method](params) };
  } catch ({ code, message, data }) {
    return { error: { code, message, data } };
  }
}

const print = (value) => console.log(JSON.stringify(value));

const [client, transport] = kind === "sdk" ? makeSDKClient() : makeClient();
await client.connect(transport);
print({ version: transport.protocolVersion, capabilities: client.getServerCapabilities() });
for await (const line of createInterface({ input: process.stdin })) {
  print(await Promise.all(JSON.parse(line).map(call)));
}
await client.close();
