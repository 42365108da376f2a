"""What an order costs."""

RATES = {"standard": 0.19, "reduced": 0.07}


def total(prices, rate="standard"):
    """Return the sum of prices with tax, in cents, rounded half up."""
    net = sum(prices)
    return int(net * RATES[rate] + 0.5)


def parse(text):
    """Return the prices in text, one in each line, in cents."""
    prices = []
    for line in text.splitlines():
        if line.strip():
            prices.append(round(float(line) * 100))
    return prices


def receipt(prices):
    """Return one line for each price and the total below them."""
    lines = [f"{p / 100:8.2f}" for p in prices]
    lines.append("-" * 8)
    lines.append(f"{total(prices) / 100:8.2f}")
    return "\n".join(lines)
