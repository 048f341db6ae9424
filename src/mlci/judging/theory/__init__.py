"""The paper's theory evaluated on data: what one score can achieve, and does achieve, for several outcomes at once.

Turn scores and outcomes (NaN = unknown) into frozen results; no model is needed. Except for the kernel's quadratic
forms, everything is one sort and a few prefix sums, so whole cohorts are diagnosed exactly, without subsampling.

Notation, for n admissions in ascending order of score:

- split j: the first j admissions are below a cut, the other n - j beyond it
- l_t: outcome t, centred
- W~: the matrix with rows l_t / ||l_t||, times the square root of the outcome's weight
- v: the leading right singular vector of W~, the direction that the outcomes share
- g_j: the centred indicator of "beyond the cut"
- rho_j(w): the cosine of w and g_j
"""

from mlci.judging.theory._checks import Check as Check
from mlci.judging.theory._checks import check as check
from mlci.judging.theory._cutoff import Contrast as Contrast
from mlci.judging.theory._cutoff import Cutoff as Cutoff
from mlci.judging.theory._cutoff import Rate as Rate
from mlci.judging.theory._cutoff import certify as certify
from mlci.judging.theory._cutoff import contrasts as contrasts
from mlci.judging.theory._cutoff import cutoff as cutoff
from mlci.judging.theory._cutoff import rate_of as rate_of
from mlci.judging.theory._diagnosis import Certificate as Certificate
from mlci.judging.theory._diagnosis import Diagnosis as Diagnosis
from mlci.judging.theory._diagnosis import diagnose as diagnose
from mlci.judging.theory._noise import NoiseAverage as NoiseAverage
from mlci.judging.theory._noise import noise_average as noise_average
from mlci.judging.theory._outcomes import complete as complete
from mlci.judging.theory._scan import Scan as Scan
from mlci.judging.theory._scan import Threshold as Threshold
from mlci.judging.theory._scan import scan as scan
from mlci.judging.theory._setting import Setting as Setting
from mlci.judging.theory._setting import settle as settle
from mlci.judging.theory._spacing import Spacing as Spacing
from mlci.judging.theory._spacing import best_spacing as best_spacing
