"""Pathfinder: the label is what connected components of the clean drawing say."""

from __future__ import annotations

from itertools import islice

import numpy as np
from scipy import ndimage

from nco_bench.problems.lra.pathfinder import clean_drawing, drawings, render, tokens

EIGHT = np.ones((3, 3))


def test_label_is_connectedness_of_the_dots_in_the_clean_drawing() -> None:
    labels = []
    for drawing in islice(drawings(5), 40):
        components, number = ndimage.label(clean_drawing(drawing), EIGHT)
        (a, b), (c, d) = drawing.dots.astype(int)
        assert components[a, b] > 0
        assert components[c, d] > 0
        assert (components[a, b] == components[c, d]) == bool(drawing.label)
        assert number == 6  # two contours, four distractors, none of them touching
        labels.append(drawing.label)
    assert {0, 1} == set(labels)


def test_the_image_has_gaps_where_the_clean_drawing_has_none() -> None:
    for drawing in islice(drawings(6), 5):
        image = render(drawing)
        assert ndimage.label(image > 0.5 * image.max(), EIGHT)[1] > 12
        assert not (image[~ndimage.binary_dilation(clean_drawing(drawing), EIGHT)]).any()


def test_dots_are_the_whitest_and_tokens_are_pixels() -> None:
    drawing = next(drawings(7))
    image = render(drawing)
    assert (image == 255).sum() >= 4
    np.testing.assert_array_equal(tokens(image).reshape(32, 32) - 1, image)


def test_every_image_has_a_stream_of_its_own() -> None:
    whole = [render(d) for d in islice(drawings(8), 4)]
    np.testing.assert_array_equal(render(next(drawings(8, start=3))), whole[3])
    assert not np.array_equal(render(next(drawings(9))), whole[0])
    assert not np.array_equal(render(next(drawings(8, purpose=1))), whole[0])
