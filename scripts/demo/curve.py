"""curve.py LOSSES.csv CURVE.svg ENTROPY HELD_OUT: draws the losses of examples/word_model.cpp, with the loss of a model that
only knows how frequent words are as a dashed line, in training and for the words that are held out."""

import csv
import math
import sys

LEFT, TOP, WIDTH, HEIGHT = 60, 40, 640, 360  # of the axes, in pixels
TRAINING, SMOOTH, HELD = "#56b4e9", "#0072b2", "#d55e00"


def ticks(low, high):
    """Some five round numbers in [low, high]."""
    size = 10 ** math.floor(math.log10((high - low) / 5))
    step = next(size * k for k in (1, 2, 5, 10) if (high - low) / (size * k) <= 6)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def smoothed(points):
    """Means over fifty steps, at their middles; over fewer where there are not even ten times as many."""
    run = max(1, min(50, len(points) // 10))
    runs = [points[k : k + run] for k in range(0, len(points) - run + 1, run)]
    return [(sum(x for x, _ in some) / run, sum(y for _, y in some) / run) for some in runs]


def draw(losses_path, curve_path, entropy, held_entropy):
    with open(losses_path, newline="") as file:
        rows = list(csv.DictReader(file))
    training = [(int(row["step"]), float(row["loss"])) for row in rows if row["loss"]]
    held = [(int(row["step"]), float(row["held_out"])) for row in rows if row["held_out"]]
    baselines = [(float(entropy), SMOOTH), (float(held_entropy), HELD)]
    values = [y for _, y in training + held] + [y for y, _ in baselines]
    low, high, last = math.floor(min(values)), math.ceil(max(values)), training[-1][0]
    x_of = lambda x: LEFT + WIDTH * x / last
    y_of = lambda y: TOP + HEIGHT * (high - y) / (high - low)
    text = lambda x, y, anchor, words, more="": f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>'

    def line(points, colour, width, more=""):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{more}/>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + 50}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        text(LEFT, TOP - 16, "start", "Loss of a next-word model", ' font-size="15"'),
    ]
    for y in ticks(low, high):
        parts.append(line([(0, y), (last, y)], "#dddddd", 1))
        parts.append(text(LEFT - 8, y_of(y) + 4, "end", f"{y:g}"))
    for x in ticks(0, last):
        parts.append(text(x_of(x), TOP + HEIGHT + 18, "middle", f"{x:g}"))
    parts.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "middle", "step"))
    middle = f"{16},{TOP + HEIGHT / 2:.0f}"
    parts.append(text(16, TOP + HEIGHT / 2, "middle", "nats a word", f' transform="rotate(-90 {middle})"'))
    parts += [line([(0, y), (last, y)], colour, 1.5, ' stroke-dasharray="6 4"') for y, colour in baselines]
    parts.append(line(training, TRAINING, 0.7))
    parts.append(line(smoothed(training), SMOOTH, 2))
    parts.append(line(held, HELD, 2))
    parts += [f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="4" fill="{HELD}"/>' for x, y in held]
    legend = [("training, and means over some steps", SMOOTH, ""), ("held out", HELD, ""),
              ("only the frequencies of words are known", "#666666", ' stroke-dasharray="6 4"')]
    for k, (words, colour, more) in enumerate(legend):
        y = TOP + 16 + 18 * k
        parts.append(f'<line x1="{LEFT + WIDTH - 290}" y1="{y}" x2="{LEFT + WIDTH - 260}" y2="{y}" stroke="{colour}" '
                     f'stroke-width="2"{more}/>')
        parts.append(text(LEFT + WIDTH - 252, y + 4, "start", words))
    parts.append("</svg>")
    with open(curve_path, "w") as file:
        file.write("\n".join(parts) + "\n")


if __name__ == "__main__":
    draw(*sys.argv[1:])
