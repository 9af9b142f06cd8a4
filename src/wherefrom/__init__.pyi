from wherefrom.api import Study as Study
from wherefrom.api import Wherefrom as Wherefrom
from wherefrom.api import ask as ask
from wherefrom.api import design as design
from wherefrom.api import evaluate as evaluate
from wherefrom.api import law as law
from wherefrom.api import load as load
from wherefrom.api import trace as trace
from wherefrom.attention.designs import Design as Design
from wherefrom.attention.equation import Attention as Attention
from wherefrom.attention.equation import attend as attend
from wherefrom.attention.laws import HeadsLaw as HeadsLaw
from wherefrom.checker import CheckResult as CheckResult
from wherefrom.checker import check as check
from wherefrom.corpus.database import read_documents as read_documents
from wherefrom.corpus.questions import read_questions as read_questions
from wherefrom.corpus.world import make_world as make_world
from wherefrom.corpus.world import write_world as write_world
from wherefrom.errors import Record as Record
from wherefrom.errors import UserError as UserError
from wherefrom.provenance.ask import Asker as Asker
from wherefrom.provenance.ask import open_asker as open_asker
from wherefrom.provenance.guarantee import Guarantee as Guarantee
from wherefrom.provenance.verdicts import Verdict as Verdict
from wherefrom.recall.table import Recall as Recall
from wherefrom.study import StudyResult as StudyResult
from wherefrom.training.run_folder import Run as Run

__version__: str
__all__: list[str]
