"""Prompt text of an inquiry: the role first, then facts and material, the request last."""

import json

from clew.apps.drivers.inquiries import Inquiry


def role_of(inquiry: Inquiry) -> str:
    return f"{inquiry.role}\n\nLanguage: {inquiry.language}"


def request_of(inquiry: Inquiry) -> str:
    """Facts and material, apart from the request that they serve."""
    sections = (
        [f"<facts>\n{json.dumps(dict(inquiry.facts), ensure_ascii=False)}\n</facts>"] if inquiry.facts else []
    )
    sections += [
        f"<document label={json.dumps(one.label, ensure_ascii=False)}>\n{one.text}\n</document>"
        for one in inquiry.material
    ]
    sections.append(f"<request>\n{inquiry.prompt}\n</request>")
    return "\n\n".join(sections)


def worded(inquiry: Inquiry) -> str:
    """All of it as one text."""
    return f"{role_of(inquiry)}\n\n{request_of(inquiry)}\n"
