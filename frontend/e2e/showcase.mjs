// A small shop, and the work done on it, for pictures of every screen.
import { execFileSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const files = {
  'README.md': '# Shop API\n\nThe cart of a small shop. `python3 -m unittest` runs the tests, `python3 serve.py` shows the checkout.\n',
  '.gitignore': '__pycache__/\n',
  'cart/__init__.py': '',
  'cart/total.py': `"""Sums of a cart. Prices are euros, as the catalogue has them."""

SHIPPING = 5.10


def lines_total(lines):
    """The sum of all lines, without shipping."""
    cents = 0
    for line in lines:
        cents += line["price"] * line["qty"]
    return cents


def total_of(lines):
    """What the customer pays."""
    return lines_total(lines) + SHIPPING


def format_total(amount):
    return "€" + format(amount, ".2f")


def receipt(lines):
    rows = [f'{line["qty"]} x {line["name"]}' for line in lines]
    rows.append("-" * 12)
    rows.append(format_total(total_of(lines)))
    return "\\n".join(rows)
`,
  'old/sum.py': Array.from({ length: 18 }, (_, i) => (i ? `    value_${i} = ${i}` : 'def unused():')).join('\n') + '\n',
  'tests/__init__.py': '',
  'tests/test_total.py': `import unittest

from cart.total import total_of


class Total(unittest.TestCase):
    def test_two_mugs(self):
        self.assertEqual(total_of([{"name": "Mug", "price": 9.90, "qty": 2}]), 24.90)

    def test_many_stickers(self):
        self.assertEqual(total_of([{"name": "Sticker", "price": 0.10, "qty": 3}]), 5.40)
`,
  '.github/workflows/ci.yml': 'name: ci\non: [push]\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: python3 -m unittest\n',
  'serve.py': `"""Shows the checkout on port 5173."""
from http.server import BaseHTTPRequestHandler, HTTPServer

PAGE = """<!doctype html><title>Checkout</title><meta charset="utf-8">
<style>
 body { font: 18px/1.5 "DejaVu Sans", sans-serif; margin: 40px 44px; color: #1b1e1c; background: #fff }
 main { display: grid; grid-template-columns: 1fr 340px; gap: 40px }
 label { display: block; margin: 14px 0 4px } input { width: 100%; font: inherit; padding: 8px 12px; border: 1px solid #c9c9c4; border-radius: 6px; box-sizing: border-box }
 aside { background: #f1f1ee; border-radius: 8px; padding: 16px 20px; align-self: start } aside p { display: flex; justify-content: space-between; margin: 6px 0 } hr { border: 0; border-top: 1px solid #d3d4ce }
 button { margin-top: 24px; font: inherit; padding: 12px 32px; border: 0; border-radius: 6px; background: #0a7457; color: #fff }
</style>
<h1>Checkout</h1>
<main><form onsubmit="event.preventDefault(); document.querySelector('output').textContent = 'Thank you, ' + this.name.value"><label for="name">Name</label><input id="name" name="name"><label for="card">Card</label><input id="card" name="card"><button>Pay €24.90</button> <output></output></form>
<aside><p><span>2 × Mug</span><b>€19.80</b></p><p><span>Shipping</span><b>€5.10</b></p><hr><p><span>Total</span><b>€24.90</b></p></aside></main>"""


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        body = PAGE.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HTTPServer(("127.0.0.1", 5173), Page).serve_forever()
`,
}

const exec = (...argv) => ({ tool: 'exec', args: { argv } })
const edit = (path, old, text) => ({ tool: 'edit', args: { path, old, new: text } })
const plan = (...states) => ({ tool: 'plan', args: { items: ['See why the test fails', 'Count in cents', 'Limit an order, and test that', 'Look at the checkout page', 'Try the payment provider'].map((text, i) => ({ text, state: states[i] ?? 'open' })) } })
const test = exec('python3', '-m', 'unittest')

/** What a model says and does for the job, for the model server of tests (YAML holds JSON). */
export const job = JSON.stringify({
  served: 'shop-coder-2',
  answers: [
    { think: 'The person wants the checkout test to pass. I run it before I read anything, then look for the sum.', say: 'The checkout test fails. I look at it first.', calls: [plan('doing'), test, { tool: 'search', args: { pattern: 'total_of' } }, { tool: 'read', args: { path: 'cart/total.py' } }] },
    {
      think: '0.1 three times is 0.30000000000000004: the sum is kept in floats.',
      say: 'Prices are added as floats, so three stickers cost `0.30000000000000004`. I count in cents:\n\n1. `lines_total` rounds each price to cents and refuses an order that is too large.\n2. `total_of` rounds once, at the end.',
      calls: [
        edit('cart/total.py', '        cents += line["price"] * line["qty"]\n    return cents', '        cents += round(line["price"] * 100) * line["qty"]\n        if cents > 10_000_000:\n            raise ValueError("too much for one order")\n    return cents / 100'),
        edit('cart/total.py', '    return lines_total(lines) + SHIPPING', '    return round(lines_total(lines) + SHIPPING, 2)'),
        edit('cart/total.py', '    rows.append("-" * 12)', '    rows.append("=" * 12)'),
        test, plan('done', 'done', 'doing'),
      ],
    },
    {
      calls: [
        { tool: 'write', args: { path: 'tests/test_limit.py', content: 'import unittest\n\nfrom cart.total import total_of\n\n\nclass Limit(unittest.TestCase):\n    def test_one_order(self):\n        with self.assertRaises(ValueError):\n            total_of([{"name": "Car\u200b", "price": 200_000, "qty": 1}])\n' } },
        exec('git', 'rm', '-q', 'old/sum.py'),
        edit('.github/workflows/ci.yml', '      - run: python3 -m unittest', '      - run: python3 -m unittest -v\n      - run: python3 scripts/seed.py'),
      ],
    },
    { say: 'Now the page itself, in the browser.', calls: [plan('done', 'done', 'done', 'doing'), { tool: 'exec', args: { lang: 'bash', code: 'setsid python3 serve.py >/tmp/serve.log 2>&1 & for i in $(seq 100); do curl -fsS -o /dev/null http://127.0.0.1:5173/ && exit 0; sleep 0.1; done; exit 1' } }] },
    { calls: [{ tool: 'browser_open', args: { url: 'http://127.0.0.1:5173/checkout' } }, { tool: 'browser_snapshot', args: {} }] },
    { capture: { name: 'textbox "Name"[^\\n]*\\[(\\w+)\\]', card: 'textbox "Card"[^\\n]*\\[(\\w+)\\]' }, calls: [{ tool: 'browser_type', args: { ref: '${name}', text: 'Ada Park' } }, { tool: 'browser_type', args: { ref: '${card}', text: '4242 4242 4242 4242' } }, { tool: 'browser_screenshot', args: {} }] },
    { say: 'The page shows the right sum. Last, the payment provider.', calls: [plan('done', 'done', 'done', 'done', 'doing'), test, exec('curl', '-fsS', '-m', '600', 'https://api.payments.example/v1/charges?env=staging')] },
  ],
})

/** The beginning of a long answer, slowly. */
export const slow = JSON.stringify({ served: 'shop-coder-2', answers: [
  { fail: { kind: 'busy', retry_after: '1' } },
  { say: 'I read the runner first.', calls: [plan('doing'), { tool: 'read', args: { path: 'tests/test_total.py' } }, { tool: 'list', args: { path: 'tests' } }, { tool: 'exec', args: { argv: 'pytest' } }] },
  { think: 'Three ways. The smallest one first.', chunk: 8, delay_ms: 60, say: 'The tests use `unittest`, which needs no runner of its own. There are three ways to go:\n\n- keep `unittest` and add a report in the form that the server of builds reads;\n- move to `pytest`, which runs these tests as they are;\n- write a runner, which nobody should maintain.\n\n```python\nimport unittest\n\nclass Total(unittest.TestCase):\n    def test_three(self):\n        self.assertEqual(total_of(THREE), 5.40)\n```\n\nI would move to `pytest` in two steps, so that each of them can be reviewed by itself. '.repeat(12) },
] })
export const checks = [{ name: 'unit tests', code: 'python3 -m unittest' }]

/** Writes the shop as a repository with one commit and gives its folder. */
export function shop(dir, name = 'shop-api') {
  const src = join(dir, name)
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(src, path)), { recursive: true })
    writeFileSync(join(src, path), text)
  }
  const git = (...a) => execFileSync('git', ['-C', src, '-c', 'user.name=Ada', '-c', 'user.email=ada@shop.example', ...a])
  git('init', '-q', '-b', 'main')
  git('add', '.')
  git('commit', '-q', '-m', 'The shop')
  return src
}
