"""What was drawn on matplotlib axes."""

import numpy as np


def line(axes, label):
    """Data of the line with a label, of shape (n, 2)."""
    (found,) = [x for x in axes.lines if x.get_label() == label]
    return found.get_xydata()


def levels(axes):
    """Heights of horizontal lines across the axes."""
    return [x.get_ydata()[0] for x in axes.lines if len(x.get_xdata()) == 2 and np.ptp(x.get_ydata()) == 0.0]


def places(axes):
    """Positions of vertical lines across the axes."""
    return [x.get_xdata()[0] for x in axes.lines if len(x.get_xdata()) == 2 and np.ptp(x.get_xdata()) == 0.0]


def inside(figure):
    """Is all text within the figure, and no title on another?"""
    figure.canvas.draw()
    whole, titles = figure.bbox, []
    for axes in figure.axes:
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            if text.get_text():
                box = text.get_window_extent()
                assert whole.x0 - 1 <= box.x0, text
                assert whole.y0 - 1 <= box.y0, text
                assert box.x1 <= whole.x1 + 1, text
                assert box.y1 <= whole.y1 + 1, text
        if axes.title.get_text():
            titles.append(axes.title.get_window_extent())
    for k, box in enumerate(titles):
        assert not any(box.overlaps(other) for other in titles[:k])
    return True
