from mlci import spark as spark
from mlci.base.errors import InputError as InputError
from mlci.codes.comorbidity import charlson as charlson
from mlci.codes.comorbidity import elixhauser as elixhauser
from mlci.codes.comorbidity import indices as indices
from mlci.cohort import Cohort as Cohort
from mlci.cohort import build_cohort as build_cohort
from mlci.cohort import read_cohort as read_cohort
from mlci.index.estimator import MLCI as MLCI
from mlci.index.estimator import load as load
from mlci.index.shift import ShiftWarning as ShiftWarning
from mlci.judging.compare import compare as compare
from mlci.judging.evaluate import evaluate as evaluate
from mlci.measures.alignment import distance_correlation as distance_correlation
from mlci.measures.alignment import nhsic as nhsic
from mlci.measures.information import mutual_information as mutual_information
from mlci.showing import plots as plots
from mlci.showing import report as report

__version__: str
