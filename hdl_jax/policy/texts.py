"""Every prompt of ours in one file: what asks for a reflection or for retry points, and what a hindsight context adds.

The domain writes the task, the policy the attempt, the verifier the record; these texts only put them together.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Texts:
    """The wording, as `str.format` templates.

    Attributes:
        lead: put before each text of the embedded policy, so that a text's first word is the same piece as inside a
            sentence; a model with a template of its own is given its texts as they are.
        turn: one turn of an attempt; fields action, observation.
        numbered_turn: the same for the retry-point prompt; also number, from 1.
        reflection: asks for the two-field reflection; fields opening, attempt, feedback.
        hindsight: what the hindsight context adds to the first user message; fields feedback, reflection.
        retry_failure: asks for the earliest wrong step of a failed attempt; fields opening, attempt, feedback, last.
        retry_success: asks for a step worth branching at in a successful one; the same fields.
    """

    lead: str
    turn: str
    numbered_turn: str
    reflection: str
    hindsight: str
    retry_failure: str
    retry_success: str


# The embedded policy was taught these words and knows few others.
EMBEDDED = Texts(
    lead=" ",
    turn="{action} | {observation} ; ",
    numbered_turn="{number} {action} | {observation} ; ",
    reflection="{opening} attempt : {attempt}record : {feedback} . reflect",
    hindsight="record : {feedback} . reflection : {reflection}",
    retry_failure="{opening} attempt : {attempt}record : {feedback} . earliest wrong step , 1 to {last}",
    retry_success="{opening} attempt : {attempt}record : {feedback} . steps to branch at , 1 to {last}",
)

# For published instruction-tuned models. Both labels are spelt out as lines: a small model repeats `SUCCESS|FAILURE`
# as it is. The summary's 50 to 90 words are about 60 to 120 tokens.
INSTRUCT = Texts(
    lead="",
    turn="> {action}\n{observation}\n",
    numbered_turn="[{number}] > {action}\n{observation}\n",
    reflection="""\
Here are a task, an attempt at it, and the verifier's record of that attempt.

TASK:
{opening}

ATTEMPT:
{attempt}
RECORD:
{feedback}

Reflect on the attempt in your own words. Reply with exactly two fields and nothing else.
The first is the line "OUTCOME: SUCCESS" if by the record the attempt succeeded, or "OUTCOME: FAILURE" if it did not.
The second is "SUMMARY: " and 50 to 90 words: what the attempt did, why by the record it turned out so and, if it \
failed, what the right approach is.
Do not quote the attempt or the record. Do not mention positions, line or step numbers, or percentages.""",
    hindsight="""\
An attempt at this task has been verified. The record: {feedback}
A reflection on that attempt:
{reflection}""",
    retry_failure="""\
Here are a task, an attempt at it in numbered steps, and the verifier's record of that attempt. The attempt failed.

TASK:
{opening}

ATTEMPT:
{attempt}
RECORD:
{feedback}

Which is the earliest wrong step, and which other step went wrong or could have saved the attempt? Reply with exactly \
two lines and nothing else: "STEP: " and the number of the first, then "STEP2: " and the number of the second. \
Both are numbers from 1 to {last}, and they differ.""",
    retry_success="""\
Here are a task, an attempt at it in numbered steps, and the verifier's record of that attempt. The attempt succeeded.

TASK:
{opening}

ATTEMPT:
{attempt}
RECORD:
{feedback}

At which two steps would it be most worth trying something else? Reply with exactly two lines and nothing else: \
"STEP: " and the number of the best one, then "STEP2: " and the number of the next. \
Both are numbers from 1 to {last}, and they differ.""",
)
