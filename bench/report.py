"""What the results of every benchmark look like: tables, lists, CSV files, plots."""

import csv
import os
import statistics


def aligned(rows):
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(str(cell).rjust(w) if i else str(cell).ljust(w) for i, (cell, w) in enumerate(zip(row, widths)))
            .rstrip() for row in rows]


def milliseconds(ns):
    ms = ns / 1e6
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}" if ms >= 1 else f"{ms:.3f}"


def spread(values, form="{:.2f}"):
    return f"median {form.format(statistics.median(values))}, worst {form.format(min(values))}"


def listed(title, lines, most=400):
    if lines:
        print(f"\n{title}: {len(lines)}")
        for line in lines[:most]:
            print("  " + line)


def write_csv(path, records):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    names = []
    for record in records:
        names += [name for name in record if name not in names]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        for record in records:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in record.items()})
    print(f"wrote {path}: {len(records)} lines")


def pyplot():
    """matplotlib.pyplot, or None, which is said."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not there (scripts/install-deps --bench installs it)")
        return None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


COLOURS = ["#000000", "#f0e442", "#56b4e9", "#999999", "#cc79a7", "#0072b2", "#e69f00", "#009e73", "#d55e00"]


def megabytes(record):
    return (record["bytes_read"] + record["bytes_data"] + record["bytes_zero"]) / 1e6


def plot(records, path, title, colour, ratio, levels, wanted, x=megabytes, x_label="bytes that have to move, MB",
         y_label="achieved, % of the byte ceiling"):
    """Share of the ceiling and PyTorch's time over ours by x(record), for each number of threads. Colours tell the
    column `colour`, markers the dtype. `ratio` names a column; lines at `levels` percent and at the ratio `wanted`."""
    plt = pyplot()
    if not plt or not records:
        return
    threads = list(dict.fromkeys(r["threads"] for r in records))
    values = sorted({r[colour] for r in records})
    dtypes = list(dict.fromkeys(r["dtype"] for r in records))
    colours = dict(zip(values, COLOURS[-len(values):]))
    markers = dict(zip(dtypes, "os^D"))
    with_torch = any(ratio in r for r in records)
    rows = 1 + with_torch
    figure, axes = plt.subplots(rows, len(threads), figsize=(6.5 * len(threads), 4.2 * rows), squeeze=False,
                                sharex=True, sharey="row", layout="constrained")
    highest = 200  # beyond it, in the caches, the memory's ceiling says nothing
    for column, t in enumerate(threads):
        for r in (r for r in records if r["threads"] == t):
            hollow = r.get("in_cache", 0)
            style = {"s": 20, "marker": markers[r["dtype"]], "linewidths": 0.8, "alpha": 0.8, "clip_on": False,
                     "edgecolors": colours[r[colour]], "facecolors": "none" if hollow else colours[r[colour]]}
            axes[0][column].scatter(x(r), min(r["percent"], highest), **style)
            if ratio in r:
                axes[1][column].scatter(x(r), r[ratio], **style)
        axes[0][column].set_title(f"{t} thread{'s' * (t > 1)}")
        for level in (*levels, 100):
            axes[0][column].axhline(level, color="black", lw=0.8, ls="-" if level == 100 else ":")
        axes[0][column].set_ylim(0, highest)
        ticks = sorted([x for x in (0, 25, 50, 100, 125, 150, 175, highest) if all(abs(x - y) > 5 for y in levels)]
                       + list(levels))
        axes[0][column].set_yticks(ticks, ticks[:-1] + [f"{highest}\n+"])
        for axis in axes[:, column]:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
            axis.grid(alpha=0.25)
        if with_torch:
            axes[1][column].axhline(1, color="black", lw=0.8)
            axes[1][column].axhline(wanted, color="black", lw=0.8, ls=":")
            axes[1][column].set_yscale("log")
        axes[-1][column].set_xlabel(x_label)
    axes[0][0].set_ylabel(y_label)
    if with_torch:
        axes[1][0].set_ylabel("PyTorch's time / ours")
        axes[1][0].yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axes[1][0].set_yticks([0.5, 1, 2, 3, 5, 10, 20, 50])
        axes[1][0].minorticks_off()
    entries = [plt.Line2D([], [], color=colours[v], marker="o", ls="", label=f"{colour} = {v}") for v in values]
    entries += [plt.Line2D([], [], color="black", marker=markers[d], ls="", label=d) for d in dtypes]
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False)
    figure.suptitle(title + " (hollow: everything fits the last cache)" * any("in_cache" in r for r in records))
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"wrote {path}")


def curves(panels, path, title, x_label, y_label):
    """One panel for each {name: {label: [(x, y)]}}, both axes logarithmic."""
    plt = pyplot()
    if not plt or not any(panels.values()):
        return
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    colours = dict(zip(labels, COLOURS[-len(labels):]))
    figure, axes = plt.subplots(1, len(panels), figsize=(6.5 * len(panels), 4.2), squeeze=False, sharey=True,
                                layout="constrained")
    for axis, (name, lines) in zip(axes[0], panels.items()):
        for label, points in lines.items():
            axis.plot(*zip(*points), color=colours[label], marker="o", ms=4)
        axis.set_title(name)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        for formatted in (axis.xaxis, axis.yaxis):
            formatted.set_major_formatter(lambda value, _: f"{value:g}")
        axis.grid(alpha=0.25)
        axis.set_xlabel(x_label)
    axes[0][0].set_ylabel(y_label)
    entries = [plt.Line2D([], [], color=colours[label], marker="o", label=label) for label in labels]
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"wrote {path}")
