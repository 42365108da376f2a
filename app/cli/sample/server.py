"""The order form, for development."""

import html
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from total import total

PAGE = """<!doctype html>
<title>Order</title>
<h1>Order</h1>
<form method="post">
  <label>Price in cents <input name="price" inputmode="numeric"></label>
  <button>Add up</button>
</form>
<p role="status">{}</p>
"""


class Form(BaseHTTPRequestHandler):
    def page(self, text):
        body = PAGE.format(html.escape(text)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.page("")

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        try:
            cents = total([int(form["price"][0])])
        except (KeyError, ValueError):
            self.page("Give a whole number.")
            return
        self.page(f"Total: {cents / 100:.2f}")

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8000), Form).serve_forever()
