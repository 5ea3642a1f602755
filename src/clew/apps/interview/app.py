"""The interview app: its graph, and the routes of /api/optimize."""

from langgraph.graph import StateGraph

from clew.apps.app import App, AppServices
from clew.apps.chat.documents import ChatDocuments
from clew.apps.interview.graph import Interview, InterviewState
from clew.apps.interview.routes import INTERVIEW as NAME
from clew.apps.interview.routes import interview_router


def make_graph(services: AppServices) -> StateGraph[InterviewState, None, InterviewState, InterviewState]:
    return Interview(shelf=ChatDocuments(documents=services.documents)).graph()


INTERVIEW = App(name=NAME, graph=make_graph, routes=interview_router)
