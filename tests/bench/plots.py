# SPDX-License-Identifier: MIT
"""Draws panels of curves as one SVG, both axes logarithmic, for light and dark pages."""
import math

WIDTH, HEIGHT = 370, 250  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 42
COLUMNS = 2

STYLE = """
.back { fill: #ffffff } .line { stroke: #dddddd } text { fill: #222222 } .small { fill: #555555 }
.curve { fill: none; stroke-width: 2 }
.ucx { stroke: #b3452c } .dot.ucx, text.ucx { fill: #b3452c; stroke: none }
.pindown { stroke: #1f6f8b } .dot.pindown, text.pindown { fill: #1f6f8b; stroke: none }
.other { stroke: #7a6a12 } .dot.other, text.other { fill: #7a6a12; stroke: none }
.dash { stroke-dasharray: 6 3 }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .line { stroke: #30363d } text { fill: #e6edf3 } .small { fill: #9aa4af }
.ucx { stroke: #ff9a7a } .dot.ucx, text.ucx { fill: #ff9a7a }
.pindown { stroke: #5cc5ea } .dot.pindown, text.pindown { fill: #5cc5ea }
.other { stroke: #d9c25a } .dot.other, text.other { fill: #d9c25a }
}
"""


def time_words(ns):
    """A time, as short as it can be said."""
    for unit, size in ("s", 1e9), ("ms", 1e6), ("µs", 1e3):
        if ns >= size:
            return f"{ns / size:g} {unit}"
    return f"{ns:g} ns"


def number_words(number):
    """10000 as 10k."""
    for unit, size in ("M", 10 ** 6), ("k", 1000):
        if number >= size and number % size == 0:
            return f"{number // size}{unit}"
    return str(number)


def place(number):
    """The place of a size on its axis: 0 stands a little before 1."""
    return math.log10(number) if number >= 1 else -0.6


def panel(left, top, title, xlabel, series):
    """One panel. series: (label, classes, [(size, ns)])."""
    series = [(label, kind, sorted(points)) for label, kind, points in series if points]
    sizes = sorted({x for _, _, points in series for x, _ in points})
    values = [max(y, 0.1) for _, _, points in series for _, y in points]
    low_x, high_x = place(sizes[0]), max(place(sizes[-1]), place(sizes[0]) + 1)
    low_y = math.floor(math.log10(min(values)))
    high_y = max(math.ceil(math.log10(max(values))), low_y + 2)
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x_of(size):
        return left + LEFT + plot_width * (place(size) - low_x) / (high_x - low_x)

    def y_of(ns):
        up = (math.log10(max(ns, 0.1)) - low_y) / (high_y - low_y)
        return top + TOP + plot_height * (1 - up)

    out = [f'<text x="{left + LEFT}" y="{top + 18}" font-size="13">{title}</text>']
    for power in range(low_y, high_y + 1):
        y = y_of(10.0 ** power)
        out.append(f'<line class="line" x1="{left + LEFT}" x2="{left + WIDTH - RIGHT}" '
                   f'y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="small" x="{left + LEFT - 6}" y="{y + 4:.1f}" '
                   f'text-anchor="end">{time_words(10.0 ** power)}</text>')
    last = math.inf
    for size in reversed(sizes):
        x = x_of(size)
        if x > last - 30:
            continue
        last = x
        out.append(f'<text class="small" x="{x:.1f}" y="{top + HEIGHT - BOTTOM + 16}" '
                   f'text-anchor="middle">{number_words(size)}</text>')
    out.append(f'<text class="small" x="{left + LEFT + plot_width / 2}" '
               f'y="{top + HEIGHT - BOTTOM + 32}" text-anchor="middle">{xlabel}</text>')
    for _, kind, points in series:
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        out.append(f'<polyline class="curve {kind}" points="{path}"/>')
        out.extend(f'<circle class="dot {kind}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="2.6"/>'
                   for x, y in points)
    return out


def draw(title, below, labels, panels):
    """An SVG of panels: (title, words under the axis, series). labels: (text, classes)."""
    rows = (len(panels) + COLUMNS - 1) // COLUMNS
    width, height = COLUMNS * WIDTH, 52 + rows * HEIGHT + 8 + 16 * len(below)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
           f"<style>{STYLE}</style>",
           f'<rect class="back" width="{width}" height="{height}"/>',
           f'<text x="14" y="22" font-size="15">{title}</text>']
    x = 14
    for text, kind in labels:
        out.append(f'<line class="curve {kind}" x1="{x}" x2="{x + 26}" y1="38" y2="38"/>')
        out.append(f'<text class="{kind.split()[0]}" x="{x + 32}" y="42">{text}</text>')
        x += 50 + 7 * len(text)
    for i, (name, xlabel, series) in enumerate(panels):
        out += panel(i % COLUMNS * WIDTH, 52 + i // COLUMNS * HEIGHT, name, xlabel, series)
    for i, line in enumerate(below):
        out.append(f'<text class="small" x="14" y="{height - 10 - 16 * (len(below) - 1 - i)}">'
                   f"{line}</text>")
    return "\n".join(out + ["</svg>"]) + "\n"
