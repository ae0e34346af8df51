"""A chart of the times of steps, against eager C++, as SVG."""

from report import ENGINES, ratio
from required import EAGER

COLOURS = ("#888888", "#b8cce4", "#c0392b", "#bbbbbb", "#e6a23c", "#3f7fbf")
BAR, GAP, LEFT, WIDTH, TOP, MOST = 9, 10, 130, 720, 50, 2.5


def text(x, y, content, size=11, anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{content}</text>'


def rectangle(x, y, width, height, colour):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def legend():
    step = (LEFT + WIDTH) / len(ENGINES)
    for i, (engine, colour) in enumerate(zip(ENGINES, COLOURS)):
        yield rectangle(10 + i * step, 12, 10, 10, colour)
        yield text(25 + i * step, 21, engine)


def bars(results, row, y):
    yield text(LEFT - 8, y + BAR * len(ENGINES) / 2 + 4, row, anchor="end")
    for i, (engine, colour) in enumerate(zip(ENGINES, COLOURS)):
        share = ratio(results, row, engine, EAGER)
        if share is None:
            continue
        top = y + i * BAR
        shown = min(share, MOST)
        yield rectangle(LEFT, top, WIDTH * shown / MOST, BAR - 1, colour)
        yield text(LEFT + WIDTH * shown / MOST + 3, top + BAR - 2, f"{share:.2f}", size=8)


def write_chart(results, path):
    """Writes a group of bars for each row; longer ones than MOST are cut off, with their number beside."""
    rows = list(results["rows"])
    height = TOP + len(rows) * (BAR * len(ENGINES) + GAP) + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 50}" height="{height}" font-family="sans-serif">',
        rectangle(0, 0, LEFT + WIDTH + 50, height, "white"),
        *legend(),
        text(LEFT, TOP - 12, "time of a step, against eager C++ (less is better)"),
    ]
    one = LEFT + WIDTH / MOST
    lines.append(f'<line x1="{one}" y1="{TOP}" x2="{one}" y2="{height - 10}" stroke="#444" stroke-dasharray="3 3"/>')
    for i, row in enumerate(rows):
        lines += bars(results, row, TOP + i * (BAR * len(ENGINES) + GAP))
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")
