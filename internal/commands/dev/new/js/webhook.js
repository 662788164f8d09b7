// An admission webhook: it rejects pods with an image that has no tag.
'use strict';

const fs = require('node:fs');
const https = require('node:https');

// rejection returns the reason to reject a request; undefined to allow it.
function rejection(request) {
  const spec = request.object?.spec ?? {};
  for (const { image = '' } of [...(spec.initContainers ?? []), ...(spec.containers ?? [])]) {
    const last = image.slice(image.lastIndexOf('/') + 1);
    if (!/[:@]/.test(last)) return `the image ${last} has no tag`;
  }
}

function answer(body) {
  const { apiVersion, kind, request } = JSON.parse(body);
  const why = rejection(request);
  const response = { uid: request.uid, allowed: why === undefined };
  if (why !== undefined) response.status = { message: why, code: 403 };
  return JSON.stringify({ apiVersion, kind, response });
}

const directory = process.env.CERT_DIR;
const files = { cert: fs.readFileSync(`${directory}/tls.crt`), key: fs.readFileSync(`${directory}/tls.key`) };
https.createServer(files, (request, response) => {
  if (request.method !== 'POST' || request.url.split('?')[0] !== '/validate') {
    response.writeHead(404).end();
    return;
  }
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    try {
      const body = answer(Buffer.concat(parts));
      response.writeHead(200, { 'Content-Type': 'application/json' }).end(body);
    } catch (error) {
      response.writeHead(400).end(String(error));
    }
  });
// In a cluster, LISTEN_ADDRESS is 0.0.0.0.
}).listen(Number(process.env.PORT), process.env.LISTEN_ADDRESS || '127.0.0.1');
