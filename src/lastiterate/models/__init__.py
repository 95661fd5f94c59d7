"""Private models in the manner of scikit-learn, each with a certificate.

They train as long as it takes at a fixed epsilon, because only the last iterate is released.
"""

from lastiterate.models.huber import PrivateHuberRegressor
from lastiterate.models.logistic import PrivateLogisticRegression
from lastiterate.models.pipeline import certificate_of
from lastiterate.models.privacy_warning import PrivacyWarning
from lastiterate.models.ridge import PrivateRidge
from lastiterate.models.scaler import PrivateStandardScaler
from lastiterate.models.scattering import ScatteringFeatures
from lastiterate.models.softmax import PrivateSoftmaxRegression
from lastiterate.models.svc import PrivateLinearSVC
from lastiterate.models.table_model import PrivateTableModel
from lastiterate.models.tune import Tuned, tune

__all__ = [
    "PrivacyWarning",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateSoftmaxRegression",
    "PrivateStandardScaler",
    "PrivateTableModel",
    "ScatteringFeatures",
    "Tuned",
    "certificate_of",
    "tune",
]
