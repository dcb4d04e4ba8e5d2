"""The disclosed share as predicted, against what the sums of real first-round updates let a server recover.

    FEDGT_DATA=<folder with MNIST/raw> python benchmarks/disclosed_share.py [seeds]
    python benchmarks/disclosed_share.py --table      # the table in docs/disclosed-share.md again, from the rows

Rows go to docs/results/disclosed_share.csv, the table into docs/disclosed-share.md, the picture to
docs/images/disclosed-share.png. Recovered is the part of the variance of the clients' differences from the mean, over all
entries of the update, that the server's best linear estimate explains; it knows the sums and the weights, and nothing else.
Fitted is the same with coefficients that are fitted to the true updates, as if it knew exactly how these clients differ.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from fedgt.design import named_design
from fedgt.privacy import disclosed_share, minimum_support
from fedgt.train import LocalTraining, LogisticRegression, load, partition_dirichlet, partition_iid, train_clients
from fedgt.types import FloatArray, IntArray

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results" / "disclosed_share.csv"
PAGE = DOCS / "disclosed-share.md"
PICTURE = DOCS / "images" / "disclosed-share.png"
FIELDS = ["data", "model", "partition", "seed", "opened", "r", "predicted_mean", "predicted_largest"]
FIELDS += ["recovered_mean", "recovered_all", "recovered_largest", "fitted_mean"]
BEGIN, END = "<!-- the table of benchmarks/disclosed_share.py -->", "<!-- end of the table -->"
CLIENTS, HIDDEN = 15, 32
PARTITIONS = ("iid", "dirichlet 1.0")
Train = Callable[[FloatArray, IntArray, Sequence[IntArray], int, int], FloatArray]


def powers(rows: int) -> FloatArray:
    """Whole-number coefficients: powers of 1, ..., 15 modulo 17. Any `rows` columns are independent, so r = 16 - rows."""
    return np.array([[pow(x, power, 17) for x in range(1, CLIENTS + 1)] for power in range(rows)], dtype=float)


OPENED: dict[str, FloatArray] = {
    "one sum over everybody": np.ones((1, CLIENTS)),
    "a partition into three groups of five": np.repeat(np.eye(3), 5, axis=1),
    "the paper's 15 x 8": named_design("bch-15x8").matrix.astype(float),
    "the default, 15 x 10": named_design("graded-15x10-b").matrix.astype(float),
    "10 sums with coefficients": powers(10),
    "12 sums with coefficients": powers(12),
}


def one_layer(inputs: FloatArray, labels: IntArray, parts: Sequence[IntArray], classes: int, seed: int) -> FloatArray:
    """float[clients, entries]: updates of the one-layer network after its first round."""
    model = LogisticRegression(classes=classes, features=inputs.shape[1])
    start = model.initial(rng=np.random.default_rng([seed, 1]))
    trained = train_clients(
        start,
        model=model,
        images=inputs,
        labels=labels,
        parts=parts,
        rngs=[np.random.default_rng([seed, 2, client]) for client in range(CLIENTS)],
        training=LocalTraining(batch_size=16),
    )
    return np.array([np.concatenate([(one[name] - start[name]).ravel() for name in start]) for one in trained])


def two_layers(inputs: FloatArray, labels: IntArray, parts: Sequence[IntArray], classes: int, seed: int) -> FloatArray:
    """The same of a network with one hidden layer of tanh, trained by plain SGD."""
    rng = np.random.default_rng([seed, 1])
    start = [
        rng.normal(0, size**-0.5, shape)
        for size, shape in ((inputs.shape[1], (inputs.shape[1], HIDDEN)), (HIDDEN, (HIDDEN, classes)))
    ]
    updates = []
    for client, part in enumerate(parts):
        first, second = (one.copy() for one in start)
        order = np.random.default_rng([seed, 2, client]).permutation(part)
        for batch in np.array_split(order, max(1, len(order) // 16)):
            seen = inputs[batch]
            hidden = np.tanh(seen @ first)
            scores = hidden @ second
            wrong = np.exp(scores - scores.max(axis=1, keepdims=True))
            wrong /= wrong.sum(axis=1, keepdims=True)
            wrong[np.arange(len(batch)), labels[batch]] -= 1
            back = (wrong @ second.T) * (1 - hidden**2)
            second -= 0.05 / len(batch) * hidden.T @ wrong
            first -= 0.05 / len(batch) * seen.T @ back
        updates.append(np.concatenate([(first - start[0]).ravel(), (second - start[1]).ravel()]))
    return np.array(updates)


def data_sets() -> Iterator[tuple[str, FloatArray, IntArray, int]]:
    """(Name, inputs, labels, classes)."""
    for name in ("mnist", "digits"):
        data = load(name)
        yield name, data.train_images, data.train_labels, data.classes
    cancer = load_breast_cancer()
    inputs = (cancer.data - cancer.data.mean(axis=0)) / cancer.data.std(axis=0)
    yield "breast cancer", inputs, cancer.target.astype(np.int64), 2


def shared_out(labels: IntArray, partition: str, seed: int) -> Sequence[IntArray]:
    """The samples of each client, equally or by Dirichlet 1.0."""
    rng = np.random.default_rng([seed, 3])
    if partition == "iid":
        return partition_iid(samples=labels.size, clients=CLIENTS, validation=0, rng=rng).clients
    return partition_dirichlet(
        labels=labels, clients=CLIENTS, validation=0, concentration=1.0, minimum=16, rng=rng
    ).clients


def fitted(rows: FloatArray, particular: FloatArray, updates: FloatArray) -> float:
    """The mean of R^2 over the clients where the coefficients of the sums are fitted to the truth."""
    sums = (rows @ updates).T
    guess = sums @ np.linalg.lstsq(sums, particular.T, rcond=1e-9)[0]
    left = ((particular.T - guess) ** 2).sum(axis=0)
    return float((1 - left / (particular**2).sum(axis=1)).mean())


def measure(seeds: int) -> None:
    """Write the rows."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for data, inputs, labels, classes in data_sets():
            for model, train in (("one layer", one_layer), ("two layers", two_layers)):
                for partition in PARTITIONS:
                    for seed in range(seeds):
                        parts = shared_out(labels, partition, seed)
                        updates = train(inputs, labels, parts, classes, seed).astype(np.float64)
                        for row in compared(updates, np.array([len(part) for part in parts], dtype=float)):
                            writer.writerow({"data": data, "model": model, "partition": partition, "seed": seed} | row)
                    print(data, model, partition, flush=True)


def compared(updates: FloatArray, weights: FloatArray) -> Iterator[dict[str, object]]:
    """What was predicted and what was recovered, for each way of opening sums; clients weigh by their samples."""
    particular = updates - weights @ updates / weights.sum()
    variance = (particular**2).sum(axis=1)
    for opened, chosen in OPENED.items():
        rows = chosen * weights
        support, share = minimum_support(rows), disclosed_share(rows, weights=weights)
        if support is None or share is None:
            raise ValueError(f"{opened} reveals nothing")
        guess = np.array([nearest(rows, client) for client in range(CLIENTS)]) @ updates
        error = ((updates - guess) ** 2).sum(axis=1)
        found = 1 - error / variance
        yield {
            "opened": opened,
            "r": support.r,
            "predicted_mean": f"{share.mean:.4f}",
            "predicted_largest": f"{share.largest:.4f}",
            "recovered_mean": f"{found.mean():.4f}",
            "recovered_all": f"{1 - error.sum() / variance.sum():.4f}",
            "recovered_largest": f"{found.max():.4f}",
            "fitted_mean": f"{fitted(rows, particular, updates):.4f}",
        }


def table() -> str:
    """The rows as Markdown: means over the seeds, IID and Dirichlet."""
    runs: dict[str, dict[tuple[str, str], list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    where: dict[tuple[str, str], None] = {}
    with RESULTS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            where[row["data"], row["model"]] = None
            runs[row["opened"]][f"{row['data']}, {row['model']}", row["partition"]].append(row)

    def pair(found: dict[tuple[str, str], list[dict[str, str]]], place: str, column: str) -> str:
        means = [np.mean([float(row[column]) for row in found[place, partition]]) for partition in PARTITIONS]
        return ", ".join(f"{mean:.2f}" for mean in means)

    places = [", ".join(place) for place in where]
    head = ["opened about one set of local models, 15 clients", "r", "predicted: mean", "largest"]
    lines = [
        "| "
        + " | ".join(
            [*head, *(f"recovered: {place}" for place in places), f"largest: {places[0]}", f"fitted: {places[0]}"]
        )
        + " |"
    ]
    lines.append("|" + "---|" * (len(head) + len(places) + 2))
    for opened, found in runs.items():
        first = pair(found, places[0], "predicted_mean"), pair(found, places[0], "predicted_largest")
        cells = [opened, found[places[0], "iid"][0]["r"], *first]
        cells += [pair(found, place, "recovered_all") for place in places]
        lines.append(
            "| "
            + " | ".join([*cells, *(pair(found, places[0], one) for one in ("recovered_largest", "fitted_mean"))])
            + " |"
        )
    return "\n".join(lines)


def nearest(rows: FloatArray, client: int) -> FloatArray:
    """The combination of the rows with entries that add up to 1 which is nearest to one client."""
    _, size, basis = np.linalg.svd(rows, full_matrices=False)
    basis = basis[size > 1e-9 * size[0]]
    onto, ones = basis.T @ basis[:, client], basis.T @ basis.sum(axis=1)
    combination: FloatArray = onto + ones * (1 - onto.sum()) / ones.sum()
    return combination


def picture() -> None:
    """Class images of one client's update less the mean, and what the server can make of the sums."""
    data = load("mnist")
    parts = shared_out(data.train_labels, "dirichlet 1.0", 0)
    updates = one_layer(data.train_images, data.train_labels, parts, data.classes, 0).astype(np.float64)
    names = [*list(OPENED)[:3], list(OPENED)[-1]]
    shares = {name: share for name in names if (share := disclosed_share(OPENED[name], weights=np.ones(CLIENTS)))}
    # The client whose share is nearest to the mean in all of them.
    client = int(np.argmin(sum((np.array(share.shares) - share.mean) ** 2 for share in shares.values())))
    mean = updates.mean(axis=0)
    lines = [("what is particular to the client", updates[client] - mean)]
    for name, share in shares.items():
        guess = nearest(OPENED[name], client) @ updates - mean
        lines.append((f"guessed: {name},\nshare {share.shares[client]:.2f}", guess))
    brightest = float(np.quantile(np.abs(lines[0][1]), 0.998))
    from matplotlib import pyplot  # only here: the table is made without

    pyplot.switch_backend("Agg")
    figure, axes = pyplot.subplots(len(lines), data.classes, figsize=(10, 5.2), layout="constrained")
    for line, (label, vector) in zip(axes, lines, strict=True):
        images = vector[: data.classes * 784].reshape(data.classes, 28, 28)
        for number, (axis, image) in enumerate(zip(line, images, strict=True)):
            axis.imshow(image, cmap="RdBu", vmin=-brightest, vmax=brightest)
            axis.set_xticks([])
            axis.set_yticks([])
            if line is axes[0]:
                axis.set_title(f"class {number}", fontsize=8)
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
    figure.savefig(PICTURE, dpi=80, metadata={"Software": ""})


def main() -> None:
    """Measure unless only the table is wanted; write the table and the picture."""
    if "--table" not in sys.argv:
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
        picture()
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
