"""The spec: queues, webhooks, entities and schedules, declared in a language of their own, in TOML, JSON or Python.

`check`, `load` and `format_spec` work on files, `plan` and `export` on loaded specs. `compile_expression` and `compile_validator`
compile the parts that run for each message. The structs of an app are in `skep.spec.ir`, the variables of its expressions in
`skep.spec.variables`.
"""

from skep.spec.allowance import off_loop, off_loop_in_turns
from skep.spec.export import ExportFormat, export
from skep.spec.expressions import (
    Expression,
    ExpressionError,
    compile_expression,
    evaluate,
    evaluate_json,
)
from skep.spec.files import Checked, check, load
from skep.spec.interchange import from_document, from_json, from_toml, to_document, to_json, to_toml
from skep.spec.ir import App
from skep.spec.mapping import FieldMapping, apply_mapping, compile_mapping
from skep.spec.messages import Misfit, Validator, compile_validator, decode, misfit, misfit_of
from skep.spec.parser import parse_app
from skep.spec.plan import Action, PlannedChange, SettingChange, plan, render_plan, settings_of
from skep.spec.printer import format_spec, print_app
from skep.spec.problems import Severity, SpecError, SpecProblem
from skep.spec.secrets import secret_problems
from skep.spec.senders import effective_verify
from skep.spec.validate import validate
from skep.spec.validate_webhook import effective_idempotency

__all__ = [
    "Action",
    "App",
    "Checked",
    "ExportFormat",
    "Expression",
    "ExpressionError",
    "FieldMapping",
    "Misfit",
    "PlannedChange",
    "SettingChange",
    "Severity",
    "SpecError",
    "SpecProblem",
    "Validator",
    "apply_mapping",
    "check",
    "compile_expression",
    "compile_mapping",
    "compile_validator",
    "decode",
    "effective_idempotency",
    "effective_verify",
    "evaluate",
    "evaluate_json",
    "export",
    "format_spec",
    "from_document",
    "from_json",
    "from_toml",
    "load",
    "misfit",
    "misfit_of",
    "off_loop",
    "off_loop_in_turns",
    "parse_app",
    "plan",
    "print_app",
    "render_plan",
    "secret_problems",
    "settings_of",
    "to_document",
    "to_json",
    "to_toml",
    "validate",
]
