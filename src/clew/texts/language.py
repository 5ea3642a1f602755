"""Which language somebody writes: by its script where that is enough, else by what a detector thinks of it."""

import re
from collections.abc import Mapping, Sequence

# Those our fixed texts exist in. A model may answer in any other.
SUPPORTED = ("en", "de", "fr", "es", "it", "pt", "zh")
DEFAULT = "en"

# Close relatives: a detector takes short texts for one of them, and who speaks them reads their neighbour.
_RELATIVES = {
    "gl": "pt", "ast": "es", "an": "es", "ca": "es", "oc": "fr", "wa": "fr", "lmo": "it", "vec": "it", "scn": "it",
    "sc": "it", "als": "de", "bar": "de", "nds": "de", "lb": "de", "wuu": "zh", "yue": "zh", "sco": "en",
}  # fmt: skip

# Words that requests are made of. A detector knows whole texts; of three words it knows little, and these tell more.
_WORDS = {
    code: frozenset(words.split())
    for code, words in {
        "en": "the a an and or of to in on for from with by per as is are was what which who how when where why does do"
        " this that these those it my our your me please thanks thank hello hi yes no again now also only more than"
        " summarize summarise summary chart plot draw compare write make create show find list give explain translate"
        " analyze analyse average total revenue sales cost costs price month months year quarter week day product"
        " products region customer report table file document email letter between all each about go continue actual",
        "de": "der die das den dem des ein eine einen einer und oder von vom zu zum zur im in auf für mit nach pro je als"
        " ist sind war was welche welcher wer wie wann wo warum bitte danke hallo ja nein nochmal jetzt auch nur mehr"
        " fasse fass zusammen zusammenfassen zeichne vergleiche schreibe schreib mache mach erstelle zeige finde gib"
        " erkläre übersetze durchschnitt umsatz verkäufe kosten preis monat jahr quartal woche tag produkt produkte"
        " region kunde bericht tabelle datei dokument mail brief zwischen alle jede über weiter diagramm steht",
        "fr": "le la les un une des et ou de du au aux à dans sur pour avec par en comme est sont était que quoi quel"
        " quelle qui comment quand où pourquoi ce cette ces mon notre votre merci bonjour oui non encore maintenant"
        " aussi seulement plus résume résumez résumer graphique compare comparez écris écrivez rédige fais faites crée"
        " montre trouve donne explique traduis moyenne total chiffre ventes coûts prix mois année trimestre semaine"
        " jour produit produits région client rapport tableau fichier document lettre entre tous chaque sur continue",
        "es": "el la los las un una unos y de del al en sobre para con por como es son fue qué cuál quién cómo cuándo"
        " dónde este esta estos mi nuestro su gracias hola sí no otra vez ahora también solo más que resume resuma"
        " resumir gráfico compara compare escribe escriba haz haga crea muestra encuentra da explica traduce promedio"
        " media total ingresos ventas costos costes precio mes meses año trimestre semana día producto productos región"
        " cliente informe tabla archivo documento correo carta entre todos cada sobre continúa",
        "it": "il lo la i gli le un una e di del della dei delle al alla in su con da come è sono era che cosa"
        " quale chi quando dove perché questo questa questi mio nostro grazie ciao sì no ancora adesso anche solo più"
        " riassumi riassumere grafico confronta scrivi fai crea mostra trova dai spiega traduci media totale ricavi"
        " vendite costi prezzo mese mesi anno trimestre settimana giorno prodotto prodotti regione cliente rapporto"
        " tabella documento lettera tra tutti ogni sul continua",
        "pt": "o a os as um uma e ou de do da dos das ao em no na sobre para com por como é são foi que qual quem quando"
        " onde este esta isto meu nosso obrigado obrigada olá sim não novamente agora também só mais resuma resumir"
        " gráfico compare escreva faça crie mostre encontre dê explique traduza média total receita vendas lucro custo custos preço unidade loja lojas"
        " mês meses ano trimestre semana dia produto produtos região cliente relatório tabela arquivo ficheiro"
        " documento carta entre todos cada continue",
    }.items()
}

# Below these a guess is worth less than what was spoken before, or than English.
SURE = 0.45
LIKELY = 0.3
# One word that is in no list, such as "ok", says nothing unless the detector has no doubt at all.
CERTAIN = 0.9
_ONLY_MINE = 3
_FEW = 3

_CODE_AND_NAMES = re.compile(
    r"```.*?```|`[^`]*`|https?://\S+|\S+@\S+|[\w./\\-]+\.[A-Za-z0-9]{1,5}\b", re.DOTALL
)
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_WORD = re.compile(r"[^\W\d_]+")
_LETTER = re.compile(r"[^\W\d_]")


def spoken(text: str) -> str:
    """The text without what belongs to no language: file names, addresses, code."""
    return " ".join(_CODE_AND_NAMES.sub(" ", text).split())


def by_script(text: str) -> str | None:
    """`zh` for Chinese characters without the signs of Japanese and Korean; None where the script does not tell."""
    letters = len(_LETTER.findall(text))
    if not letters or _KANA_OR_HANGUL.search(text):
        return None
    # One character says about as much as three letters do.
    return "zh" if len(_HAN.findall(text)) * 3 >= letters else None


def choose(text: str, scores: Mapping[str, float], *, previous: str | None = None) -> str:
    """One of the supported languages: what a detector thinks, and how many of the words are known. A weak guess
    changes nothing."""
    if (script := by_script(text)) is not None:
        return script
    folded = dict.fromkeys(SUPPORTED, 0.0)
    for code, score in scores.items():
        if (ours := _RELATIVES.get(code, code)) in folded:
            folded[ours] += score
    words = _WORD.findall(text.casefold())
    known = _known(words)
    for code, share in known.items():
        folded[code] += share
    best = max(SUPPORTED, key=lambda code: folded[code])
    says_little = len(words) < 2 and not known
    needed = CERTAIN if says_little else SURE if previous else LIKELY
    return best if folded[best] >= needed else previous or DEFAULT


def _known(words: Sequence[str]) -> dict[str, float]:
    """How much of a text each language knows, of those that know at least half of it, or a word of a few. A word of one
    language alone counts more."""
    speakers = [[code for code, its in _WORDS.items() if word in its] for word in words]
    found: dict[str, float] = {}
    for code in _WORDS:
        mine = [known for known in speakers if code in known]
        if mine and (len(mine) * 2 >= len(words) or len(words) <= _FEW):
            found[code] = sum(_ONLY_MINE if known == [code] else 1 for known in mine) / len(words)
    return found
