"""Pathfinder with 32 x 32 pixels, generated: do dashes join the two dots? **Synthetic: not the images of the release.**

The release was rendered by another program (Linsley et al., 2018), and its images cannot be had bit for bit; where they are
at hand, ``lra-pathfinder-released`` reads them. Settings, of the release (from the benchmark's builder) and ours:

========================== ============================ ===============
                           release, ``hard``            ours
========================== ============================ ===============
long contours, dashes each 2, 14                        2, 8
distractors, dashes each   5 (20 // 4), 4 (14 // 3)     4, 3
dash, gap between dashes   2, 1 pixels                  2, 2 pixels
thickness of a dash        0.5 pixels                   1.5 pixels
radius of the dots         1.5 pixels                   1.5 pixels
contrast                   0.75                         0.75 to 1
========================== ============================ ===============

So ours are shorter paths among less. Contours are random walks with a normally distributed turn per pixel; no two come
closer than `APART` pixels, and none comes so close to itself. In a positive image the dots are on the ends of one contour,
in a negative one on an end of each; all else is drawn alike. The label holds on the clean drawing (no gaps), which
`clean_drawing` gives: contours do not touch there, so dots are connected if and only if they are on one contour.
Accuracies on these images are no accuracies on the release.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STREAM_VERSION = 1
"""Part of every stream's key; bumped when the same name gives other images."""

SIDE = 32
DASH, GAP = 2, 2
CONTOUR, DISTRACTOR, DISTRACTORS = 8, 3, 4
DOT_RADIUS, LINE_RADIUS = 1.5, 0.75
APART = 3.0
"""Pixels between the centre lines of contours: two lines and a gap between them."""

DOT_APART = 4.5
"""Pixels between an end that may get a dot and other contours: two dots and a gap between them."""

TURN = 0.3
"""Standard deviation of the turn per pixel, in radians."""

STEPS_PER_PIXEL = 2
TRIES_PER_STEP, TRIES_PER_CONTOUR = 6, 60

Points = NDArray[np.float64]


@dataclass(frozen=True)
class Drawing:
    """What an image shows.

    Attributes
    ----------
    contours
        Points ``(P, 2)`` on each centre line, half a pixel apart: the two long ones, then the distractors.
    dots
        ``(2, 2)`` centres.
    label
        1 where both dots are on the ends of one contour.
    contrast
        Grey value of the dashes in 0.75..1.
    """

    contours: tuple[Points, ...]
    dots: Points
    label: int
    contrast: float


def drawings(seed: int, purpose: int = 0, start: int = 0) -> Iterator[Drawing]:
    """Yield drawings number `start` and following without end, each from a random stream of its own."""
    key = np.random.SeedSequence((seed, purpose, STREAM_VERSION, zlib.crc32(b"lra-pathfinder")))
    state, index = key.generate_state(2, np.uint64), start
    while True:
        yield _drawing(np.random.Generator(np.random.Philox(key=state, counter=[0, 0, 0, index])))
        index += 1


def render(drawing: Drawing) -> NDArray[np.uint8]:
    """Return the grey image ``(32, 32)``: dashes with soft edges, and white dots."""
    dashed = np.concatenate([_dashes(points) for points in drawing.contours])
    image = drawing.contrast * np.clip(1.25 - _distance(dashed), 0, 1)
    dots = np.clip(DOT_RADIUS + 0.5 - _distance(drawing.dots), 0, 1)
    grey: NDArray[np.uint8] = np.rint(255 * np.maximum(image, dots)).astype(np.uint8)
    return grey


def clean_drawing(drawing: Drawing) -> NDArray[np.bool_]:
    """Return ``(32, 32)``: the pixels of the contours without gaps, and of the dots."""
    lines = _distance(np.concatenate(drawing.contours)) <= LINE_RADIUS
    return lines | (_distance(drawing.dots) <= DOT_RADIUS)


def tokens(image: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Return pixels row by row as tokens: grey value plus 1."""
    return image.reshape(-1).astype(np.int16) + 1


def _dashes(points: Points) -> Points:
    period = (DASH + GAP) * STEPS_PER_PIXEL
    return points[np.arange(len(points)) % period <= DASH * STEPS_PER_PIXEL]


def _distance(points: Points) -> NDArray[np.float64]:
    """Return the distance of every pixel's centre from the nearest of ``(P, 2)`` points."""
    rows, columns = np.indices((SIDE, SIDE)) + 0.5
    squared = (rows[..., None] - points[:, 0]) ** 2 + (columns[..., None] - points[:, 1]) ** 2
    return np.sqrt(squared.min(-1))


def _drawing(rng: np.random.Generator) -> Drawing:
    while True:
        contours: list[Points] = []
        for dashes in (CONTOUR, CONTOUR, *[DISTRACTOR] * DISTRACTORS):
            points = _contour(rng, dashes, contours)
            if points is None:
                break  # too full: begin again
            contours.append(points)
        else:
            return _dotted(rng, tuple(contours))


def _dotted(rng: np.random.Generator, contours: tuple[Points, ...]) -> Drawing:
    """Put the dots on one contour or on two, with equal probability."""
    label = int(rng.integers(2))
    first, second = rng.permutation(2)
    ends = [contours[first][0], contours[first][-1]]
    if not label:
        ends[int(rng.integers(2))] = contours[second][-int(rng.integers(2))]
    return Drawing(contours, np.stack(ends), label, float(rng.uniform(0.75, 1)))


def _contour(rng: np.random.Generator, dashes: int, others: list[Points]) -> Points | None:
    """Draw a contour that keeps its distance; None when there seems to be no room."""
    steps = ((DASH + GAP) * dashes - GAP) * STEPS_PER_PIXEL
    ends = [points[[0, -1]] for points in others[:2]]
    near, far = np.concatenate([np.empty((0, 2)), *others]), np.concatenate([np.empty((0, 2)), *ends])
    for _ in range(TRIES_PER_CONTOUR):
        points = _walk(rng, steps, near, far)
        if points is not None and (
            dashes < CONTOUR or all(_free(p, near, DOT_APART) for p in points[[0, -1]])
        ):
            return points
    return None


def _walk(rng: np.random.Generator, steps: int, taken: Points, ends: Points) -> Points | None:
    own = np.empty((steps + 1, 2))
    own[0] = rng.uniform(DOT_RADIUS, SIDE - DOT_RADIUS, 2)
    if not (_free(own[0], taken) and _free(own[0], ends, DOT_APART)):
        return None
    heading = rng.uniform(0, 2 * np.pi)
    near = int(2.5 * APART * STEPS_PER_PIXEL)  # so many last points of its own may be close
    for step in range(1, steps + 1):
        for attempt in range(TRIES_PER_STEP):
            spread = TURN / STEPS_PER_PIXEL**0.5 * (1 + attempt)
            turned = heading + rng.normal(0, spread)
            at = own[step - 1] + np.array([np.sin(turned), np.cos(turned)]) / STEPS_PER_PIXEL
            clear = _free(at, taken) and _free(at, ends, DOT_APART)
            if clear and _free(at, own[: max(0, step - near)]):
                own[step], heading = at, turned
                break
        else:
            return None
    return own


def _free(at: Points, taken: Points, apart: float = APART) -> bool:
    if at.min() < DOT_RADIUS or at.max() > SIDE - DOT_RADIUS:
        return False
    return not len(taken) or float(((taken - at) ** 2).sum(1).min()) >= apart**2
