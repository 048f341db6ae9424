"""Figures: data in, Figure out; the only folder that imports matplotlib.

All figures use Okabe and Ito's colours, which colour-blind readers can distinguish, together with different marks or
line styles, so that nothing depends on colour alone. `svg` returns inline SVG that uses the text colour of the page, so
that one drawing works on light and dark pages and in print.
"""

from mlci.showing._colours import dark_style as dark_style
from mlci.showing.plots._style import Figure as Figure
from mlci.showing.plots._style import save as save
from mlci.showing.plots._style import svg as svg
from mlci.showing.plots.codes import influence as influence
from mlci.showing.plots.codes import waterfall as waterfall
from mlci.showing.plots.groups import caterpillar as caterpillar
from mlci.showing.plots.groups import funnel as funnel
from mlci.showing.plots.groups import love as love
from mlci.showing.plots.making import attrition as attrition
from mlci.showing.plots.making import benchmark as benchmark
from mlci.showing.plots.making import estimates as estimates
from mlci.showing.plots.making import learning_curves as learning_curves
from mlci.showing.plots.outcomes import calibration as calibration
from mlci.showing.plots.outcomes import risk_curve as risk_curve
from mlci.showing.plots.outcomes import risk_curves as risk_curves
from mlci.showing.plots.outcomes import score_distribution as score_distribution
from mlci.showing.plots.theory import singular_values as singular_values
from mlci.showing.plots.theory import threshold_scan as threshold_scan
