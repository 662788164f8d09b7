"""An admission webhook: it rejects pods with an image that has no tag."""

import http.server
import json
import os
import ssl


def rejection(request):
    """Say why a request is rejected; None if it is not."""
    spec = (request.get("object") or {}).get("spec") or {}
    for container in spec.get("initContainers", []) + spec.get("containers", []):
        last = container.get("image", "").rsplit("/", 1)[-1]
        if ":" not in last and "@" not in last:
            return f"the image {last} has no tag"
    return None


class Webhook(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        if self.path.split("?")[0] != "/validate":
            self.send_error(404)
            return
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        why = rejection(review["request"])
        response = {"uid": review["request"]["uid"], "allowed": why is None}
        if why is not None:
            response["status"] = {"message": why, "code": 403}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    # In a cluster, LISTEN_ADDRESS is 0.0.0.0.
    address = os.environ.get("LISTEN_ADDRESS", "127.0.0.1")
    server = http.server.ThreadingHTTPServer((address, int(os.environ["PORT"])), Webhook)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    directory = os.environ["CERT_DIR"]
    context.load_cert_chain(f"{directory}/tls.crt", f"{directory}/tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
