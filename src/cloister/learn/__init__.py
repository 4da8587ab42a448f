"""Private models that drop into scikit-learn.

    from cloister import learn, epsilon
    model = learn.LogisticRegression(epsilon(1, delta="1e-6"), bounds=(0, 1), classes=[0, 1]).fit(X, y)

Path of a fit: inputs.py (check public facts, clip) → estimator.py (charge once, before a row is read) →
integer_rows.py (exact integer sums plus noise) → the estimator's own file → release_ and receipt.

    classes     LogisticRegression, LinearSVC, GaussianNB, CategoricalNB, MixedNB, DecisionTreeClassifier,
                RandomForestClassifier, GradientBoostingClassifier, NeuralNetworkClassifier
    numbers     LinearRegression, Ridge, GradientBoostingRegressor, NeuralNetworkRegressor
    structure   KMeans, PCA
    features    MinMaxScaler, StandardScaler, OneHotEncoder (from public facts), QuantileTransformer (needs a spend)
    tools       select (private hyperparameter search), cross_val_score (noisy scores), save and load (signed files),
                prepare (columns of a schema as a model's features), serve (a model under an output policy)
    networks    deep (DP-SGD for any JAX loss)
    teachers    cloister.learn.pate.PATEClassifier, which needs public rows beside the private ones

Corrected textbook methods (output, objective and input perturbation, DPLloyd, SuLQ) are in cloister.lessons.

Submodules are imported on first use.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.learn import deep
    from cloister.learn.cluster.kmeans import KMeans
    from cloister.learn.decomposition.pca import PCA
    from cloister.learn.deep.classifier import NeuralNetworkClassifier
    from cloister.learn.deep.regressor import NeuralNetworkRegressor
    from cloister.learn.linear_model.logistic import LogisticRegression
    from cloister.learn.linear_model.regression import LinearRegression, Ridge
    from cloister.learn.linear_model.svm import LinearSVC
    from cloister.learn.model_selection.cross_val import cross_val_score
    from cloister.learn.model_selection.search import select
    from cloister.learn.naive_bayes.gaussian import GaussianNB
    from cloister.learn.naive_bayes.mixed import CategoricalNB, MixedNB
    from cloister.learn.persistence import load, save
    from cloister.learn.preprocessing.encode_features import prepare
    from cloister.learn.preprocessing.quantiles import QuantileTransformer
    from cloister.learn.preprocessing.scalers import MinMaxScaler, OneHotEncoder, StandardScaler
    from cloister.learn.serving.service import serve
    from cloister.learn.trees.boosting import GradientBoostingClassifier
    from cloister.learn.trees.boosting_regressor import GradientBoostingRegressor
    from cloister.learn.trees.forest import RandomForestClassifier
    from cloister.learn.trees.tree import DecisionTreeClassifier

__all__ = [
    "LogisticRegression",
    "LinearSVC",
    "GaussianNB",
    "CategoricalNB",
    "MixedNB",
    "DecisionTreeClassifier",
    "RandomForestClassifier",
    "GradientBoostingClassifier",
    "NeuralNetworkClassifier",
    "LinearRegression",
    "Ridge",
    "GradientBoostingRegressor",
    "NeuralNetworkRegressor",
    "KMeans",
    "PCA",
    "MinMaxScaler",
    "StandardScaler",
    "OneHotEncoder",
    "QuantileTransformer",
    "select",
    "cross_val_score",
    "save",
    "load",
    "prepare",
    "deep",
    "serve",
]

# No file may share a name exported here: importing the module would shadow that name.
__getattr__, __dir__ = door(
    __name__,
    renamed={"compare": "lessons.compare.run.compare"},
    extras={
        "sklearn": "models need scikit-learn: pip install 'cloister[learn]'.",
        "jax": "networks need jax and optax: pip install 'cloister[jax]'.",
        "optax": "networks need jax and optax: pip install 'cloister[jax]'.",
    },
)
