"""What Clew itself says to users, in every language it speaks. What a model says is the model's."""

# ruff: noqa: RUF001 - the punctuation of other languages is no mistake

from collections.abc import Iterable, Mapping
from enum import StrEnum

from clew.texts.language import DEFAULT


class Text(StrEnum):
    # the project manager
    OFFLINE = "offline"
    WILL_DO = "will_do"
    SUMMARIZE = "summarize"
    ANALYSE = "analyse"
    SEARCH = "search"
    WRITE = "write"
    CODE = "code"
    NO_TASK = "no_task"
    NO_TRANSLATION = "no_translation"
    NO_FREE_TEXT = "no_free_text"
    NO_DOCUMENT = "no_document"
    NO_TABLE = "no_table"
    # how a round ends
    DONE = "done"
    DELIVERED = "delivered"
    MISSING = "missing"
    TASKS_FAILED = "tasks_failed"
    STOPPED = "stopped"
    FAILED = "failed"
    TASK_FAILED = "task_failed"
    # agents
    SUMMARY = "summary"
    SUMMARY_OF = "summary_of"
    NOTHING_TO_SUMMARIZE = "nothing_to_summarize"
    GROUPED = "grouped"
    COUNTED = "counted"
    SHAPE = "shape"
    COLUMN = "column"
    COLUMNS = "columns"
    KIND = "kind"
    FILLED = "filled"
    DISTINCT = "distinct"
    SMALLEST = "smallest"
    LARGEST = "largest"
    AVERAGE = "average"
    TOTAL = "total"
    OTHERS = "others"
    REPORT = "report"
    FIGURES = "figures"
    FOUND = "found"
    FOUND_NOTHING = "found_nothing"
    PAGE = "page"
    SLIDE = "slide"
    SHEET = "sheet"
    SOURCES = "sources"
    WROTE = "wrote"
    SKELETON = "skeleton"


_TEXTS: Mapping[Text, Mapping[str, str]] = {
    Text.OFFLINE: {
        "en": "No language model is configured, so I work by rules: I can summarize, search, chart and put together your documents, but not reason, write freely or translate.",
        "de": "Es ist kein Sprachmodell eingerichtet, deshalb arbeite ich nach Regeln: Ich kann Ihre Dokumente zusammenfassen, durchsuchen, als Diagramm darstellen und zusammenstellen, aber nicht schlussfolgern, frei schreiben oder übersetzen.",
        "fr": "Aucun modèle de langage n’est configuré, je travaille donc selon des règles : je peux résumer vos documents, y chercher, en tirer des graphiques et les assembler, mais pas raisonner, rédiger librement ni traduire.",
        "es": "No hay ningún modelo de lenguaje configurado, así que trabajo con reglas: puedo resumir sus documentos, buscar en ellos, hacer gráficos y reunirlos, pero no razonar, redactar libremente ni traducir.",
        "it": "Nessun modello linguistico è configurato, quindi lavoro secondo regole: posso riassumere i documenti, cercarvi, ricavarne grafici e raccoglierli, ma non ragionare, scrivere liberamente o tradurre.",
        "pt": "Nenhum modelo de linguagem está configurado, por isso trabalho por regras: posso resumir os seus documentos, pesquisar neles, fazer gráficos e reuni-los, mas não raciocinar, redigir livremente nem traduzir.",
        "zh": "没有配置语言模型，因此我按规则工作：我可以对您的文档进行摘要、检索、制作图表和整理，但不能推理、自由写作或翻译。",
    },
    Text.WILL_DO: {
        "en": "This is what I do now:",
        "de": "Das mache ich jetzt:",
        "fr": "Voici ce que je fais maintenant :",
        "es": "Esto es lo que hago ahora:",
        "it": "Ecco che cosa faccio adesso:",
        "pt": "É isto que faço agora:",
        "zh": "我现在要做的是：",
    },
    Text.SUMMARIZE: {
        "en": "summarize {documents}",
        "de": "{documents} zusammenfassen",
        "fr": "résumer {documents}",
        "es": "resumir {documents}",
        "it": "riassumere {documents}",
        "pt": "resumir {documents}",
        "zh": "摘要 {documents}",
    },
    Text.ANALYSE: {
        "en": "evaluate {documents}",
        "de": "{documents} auswerten",
        "fr": "analyser {documents}",
        "es": "analizar {documents}",
        "it": "analizzare {documents}",
        "pt": "analisar {documents}",
        "zh": "分析 {documents}",
    },
    Text.SEARCH: {
        "en": "search {documents}",
        "de": "{documents} durchsuchen",
        "fr": "chercher dans {documents}",
        "es": "buscar en {documents}",
        "it": "cercare in {documents}",
        "pt": "pesquisar em {documents}",
        "zh": "检索 {documents}",
    },
    Text.WRITE: {
        "en": "write {documents}",
        "de": "{documents} schreiben",
        "fr": "rédiger {documents}",
        "es": "redactar {documents}",
        "it": "scrivere {documents}",
        "pt": "redigir {documents}",
        "zh": "编写 {documents}",
    },
    Text.CODE: {
        "en": "write the file {documents}",
        "de": "die Datei {documents} schreiben",
        "fr": "écrire le fichier {documents}",
        "es": "escribir el archivo {documents}",
        "it": "scrivere il file {documents}",
        "pt": "escrever o ficheiro {documents}",
        "zh": "编写文件 {documents}",
    },
    Text.NO_TASK: {
        "en": "Attach documents and say what you want of them: a summary, a chart or table of figures, an answer with quotes, or a report as md, docx, html or pdf.",
        "de": "Fügen Sie Dokumente an und sagen Sie, was Sie davon möchten: eine Zusammenfassung, ein Diagramm oder eine Tabelle von Zahlen, eine Antwort mit Zitaten oder einen Bericht als md, docx, html oder pdf.",
        "fr": "Joignez des documents et dites ce que vous en voulez : un résumé, un graphique ou un tableau de chiffres, une réponse avec citations, ou un rapport en md, docx, html ou pdf.",
        "es": "Adjunte documentos y diga qué quiere de ellos: un resumen, un gráfico o una tabla de cifras, una respuesta con citas, o un informe en md, docx, html o pdf.",
        "it": "Alleghi dei documenti e dica che cosa ne vuole: un riassunto, un grafico o una tabella di cifre, una risposta con citazioni, oppure una relazione in md, docx, html o pdf.",
        "pt": "Anexe documentos e diga o que pretende deles: um resumo, um gráfico ou uma tabela de números, uma resposta com citações, ou um relatório em md, docx, html ou pdf.",
        "zh": "请附上文档并说明您想要什么：摘要、数据图表或表格、带引文的回答，或 md、docx、html、pdf 格式的报告。",
    },
    Text.NO_TRANSLATION: {
        "en": "Translating needs a language model, and none is configured.",
        "de": "Zum Übersetzen braucht es ein Sprachmodell, und es ist keines eingerichtet.",
        "fr": "Traduire demande un modèle de langage, et aucun n’est configuré.",
        "es": "Traducir requiere un modelo de lenguaje y no hay ninguno configurado.",
        "it": "Per tradurre serve un modello linguistico, e nessuno è configurato.",
        "pt": "Traduzir exige um modelo de linguagem, e nenhum está configurado.",
        "zh": "翻译需要语言模型，但目前没有配置。",
    },
    Text.NO_FREE_TEXT: {
        "en": "Writing freely needs a language model; what I put together comes from your documents alone.",
        "de": "Frei zu schreiben braucht ein Sprachmodell; was ich zusammenstelle, kommt allein aus Ihren Dokumenten.",
        "fr": "Rédiger librement demande un modèle de langage ; ce que j’assemble vient uniquement de vos documents.",
        "es": "Redactar libremente requiere un modelo de lenguaje; lo que reúno procede solo de sus documentos.",
        "it": "Per scrivere liberamente serve un modello linguistico; quello che raccolgo viene solo dai suoi documenti.",
        "pt": "Redigir livremente exige um modelo de linguagem; o que reúno vem apenas dos seus documentos.",
        "zh": "自由写作需要语言模型；我整理的内容只来自您的文档。",
    },
    Text.NO_DOCUMENT: {
        "en": "There is no document to work on.",
        "de": "Es gibt kein Dokument, mit dem ich arbeiten könnte.",
        "fr": "Il n’y a aucun document sur lequel travailler.",
        "es": "No hay ningún documento con el que trabajar.",
        "it": "Non c’è nessun documento su cui lavorare.",
        "pt": "Não há nenhum documento com que trabalhar.",
        "zh": "没有可处理的文档。",
    },
    Text.NO_TABLE: {
        "en": "None of the documents holds a table to evaluate.",
        "de": "Keines der Dokumente enthält eine Tabelle, die sich auswerten ließe.",
        "fr": "Aucun des documents ne contient de tableau à analyser.",
        "es": "Ninguno de los documentos contiene una tabla que analizar.",
        "it": "Nessuno dei documenti contiene una tabella da analizzare.",
        "pt": "Nenhum dos documentos contém uma tabela para analisar.",
        "zh": "没有任何文档包含可分析的表格。",
    },
    Text.DONE: {
        "en": "Done.",
        "de": "Fertig.",
        "fr": "C’est fait.",
        "es": "Listo.",
        "it": "Fatto.",
        "pt": "Pronto.",
        "zh": "已完成。",
    },
    Text.DELIVERED: {
        "en": "Delivered: {documents}.",
        "de": "Geliefert: {documents}.",
        "fr": "Livré : {documents}.",
        "es": "Entregado: {documents}.",
        "it": "Consegnato: {documents}.",
        "pt": "Entregue: {documents}.",
        "zh": "已交付：{documents}。",
    },
    Text.MISSING: {
        "en": "Promised, but missing: {documents}.",
        "de": "Versprochen, aber nicht geliefert: {documents}.",
        "fr": "Promis, mais manquant : {documents}.",
        "es": "Prometido, pero falta: {documents}.",
        "it": "Promesso, ma mancante: {documents}.",
        "pt": "Prometido, mas em falta: {documents}.",
        "zh": "已承诺但缺失：{documents}。",
    },
    Text.TASKS_FAILED: {
        "en": "{failed} of {total} tasks failed.",
        "de": "{failed} von {total} Aufgaben sind fehlgeschlagen.",
        "fr": "{failed} tâches sur {total} ont échoué.",
        "es": "Fallaron {failed} de {total} tareas.",
        "it": "{failed} attività su {total} non sono riuscite.",
        "pt": "{failed} de {total} tarefas falharam.",
        "zh": "{total} 个任务中有 {failed} 个失败。",
    },
    Text.STOPPED: {
        "en": "The workflow was stopped.",
        "de": "Der Workflow wurde gestoppt.",
        "fr": "Le workflow a été arrêté.",
        "es": "El flujo de trabajo se ha detenido.",
        "it": "Il flusso di lavoro è stato interrotto.",
        "pt": "O fluxo de trabalho foi parado.",
        "zh": "工作流已停止。",
    },
    Text.FAILED: {
        "en": "The workflow failed: {reason}",
        "de": "Der Workflow ist fehlgeschlagen: {reason}",
        "fr": "Le workflow a échoué : {reason}",
        "es": "El flujo de trabajo ha fallado: {reason}",
        "it": "Il flusso di lavoro non è riuscito: {reason}",
        "pt": "O fluxo de trabalho falhou: {reason}",
        "zh": "工作流失败：{reason}",
    },
    Text.TASK_FAILED: {
        "en": "This could not be done: {reason}",
        "de": "Das ging nicht: {reason}",
        "fr": "Cela n’a pas pu être fait : {reason}",
        "es": "Esto no se pudo hacer: {reason}",
        "it": "Non è stato possibile: {reason}",
        "pt": "Isto não foi possível: {reason}",
        "zh": "无法完成：{reason}",
    },
    Text.SUMMARY: {
        "en": "Summary",
        "de": "Zusammenfassung",
        "fr": "Résumé",
        "es": "Resumen",
        "it": "Riassunto",
        "pt": "Resumo",
        "zh": "摘要",
    },
    Text.SUMMARY_OF: {
        "en": "Summary of {documents}",
        "de": "Zusammenfassung von {documents}",
        "fr": "Résumé de {documents}",
        "es": "Resumen de {documents}",
        "it": "Riassunto di {documents}",
        "pt": "Resumo de {documents}",
        "zh": "{documents} 摘要",
    },
    Text.NOTHING_TO_SUMMARIZE: {
        "en": "There is no text in {documents}.",
        "de": "In {documents} steht kein Text.",
        "fr": "Il n’y a pas de texte dans {documents}.",
        "es": "No hay texto en {documents}.",
        "it": "Non c’è testo in {documents}.",
        "pt": "Não há texto em {documents}.",
        "zh": "{documents} 中没有文本。",
    },
    Text.GROUPED: {
        "en": "{measure} by {group} ({how})",
        "de": "{measure} nach {group} ({how})",
        "fr": "{measure} par {group} ({how})",
        "es": "{measure} por {group} ({how})",
        "it": "{measure} per {group} ({how})",
        "pt": "{measure} por {group} ({how})",
        "zh": "按{group}的{measure}（{how}）",
    },
    Text.COUNTED: {
        "en": "Rows by {group}",
        "de": "Zeilen nach {group}",
        "fr": "Lignes par {group}",
        "es": "Filas por {group}",
        "it": "Righe per {group}",
        "pt": "Linhas por {group}",
        "zh": "按{group}的行数",
    },
    Text.SHAPE: {
        "en": "{document}: {rows} rows, {columns} columns",
        "de": "{document}: {rows} Zeilen, {columns} Spalten",
        "fr": "{document} : {rows} lignes, {columns} colonnes",
        "es": "{document}: {rows} filas, {columns} columnas",
        "it": "{document}: {rows} righe, {columns} colonne",
        "pt": "{document}: {rows} linhas, {columns} colunas",
        "zh": "{document}：{rows} 行，{columns} 列",
    },
    Text.COLUMN: {
        "en": "Column",
        "de": "Spalte",
        "fr": "Colonne",
        "es": "Columna",
        "it": "Colonna",
        "pt": "Coluna",
        "zh": "列",
    },
    Text.COLUMNS: {
        "en": "Columns",
        "de": "Spalten",
        "fr": "Colonnes",
        "es": "Columnas",
        "it": "Colonne",
        "pt": "Colunas",
        "zh": "各列",
    },
    Text.KIND: {
        "en": "Kind",
        "de": "Art",
        "fr": "Type",
        "es": "Tipo",
        "it": "Tipo",
        "pt": "Tipo",
        "zh": "类型",
    },
    Text.FILLED: {
        "en": "Filled",
        "de": "Gefüllt",
        "fr": "Remplies",
        "es": "Rellenas",
        "it": "Compilate",
        "pt": "Preenchidas",
        "zh": "非空",
    },
    Text.DISTINCT: {
        "en": "Distinct",
        "de": "Verschieden",
        "fr": "Distinctes",
        "es": "Distintas",
        "it": "Distinte",
        "pt": "Distintas",
        "zh": "不同值",
    },
    Text.SMALLEST: {
        "en": "Minimum",
        "de": "Minimum",
        "fr": "Minimum",
        "es": "Mínimo",
        "it": "Minimo",
        "pt": "Mínimo",
        "zh": "最小值",
    },
    Text.LARGEST: {
        "en": "Maximum",
        "de": "Maximum",
        "fr": "Maximum",
        "es": "Máximo",
        "it": "Massimo",
        "pt": "Máximo",
        "zh": "最大值",
    },
    Text.AVERAGE: {
        "en": "Mean",
        "de": "Mittelwert",
        "fr": "Moyenne",
        "es": "Media",
        "it": "Media",
        "pt": "Média",
        "zh": "平均值",
    },
    Text.TOTAL: {
        "en": "Total",
        "de": "Summe",
        "fr": "Total",
        "es": "Total",
        "it": "Totale",
        "pt": "Total",
        "zh": "合计",
    },
    Text.OTHERS: {
        "en": "Others",
        "de": "Übrige",
        "fr": "Autres",
        "es": "Otros",
        "it": "Altri",
        "pt": "Outros",
        "zh": "其他",
    },
    Text.REPORT: {
        "en": "Report",
        "de": "Bericht",
        "fr": "Rapport",
        "es": "Informe",
        "it": "Relazione",
        "pt": "Relatório",
        "zh": "报告",
    },
    Text.FIGURES: {
        "en": "Figures",
        "de": "Zahlen",
        "fr": "Chiffres",
        "es": "Cifras",
        "it": "Cifre",
        "pt": "Números",
        "zh": "数据",
    },
    Text.FOUND: {
        "en": "Passages found: {count}",
        "de": "Gefundene Stellen: {count}",
        "fr": "Passages trouvés : {count}",
        "es": "Pasajes encontrados: {count}",
        "it": "Passaggi trovati: {count}",
        "pt": "Passagens encontradas: {count}",
        "zh": "找到的段落：{count}",
    },
    Text.FOUND_NOTHING: {
        "en": "I found no passage in {documents} with the words of your question.",
        "de": "In {documents} habe ich keine Stelle mit den Wörtern Ihrer Frage gefunden.",
        "fr": "Je n’ai trouvé dans {documents} aucun passage avec les mots de votre question.",
        "es": "No he encontrado en {documents} ningún pasaje con las palabras de su pregunta.",
        "it": "In {documents} non ho trovato passaggi con le parole della domanda.",
        "pt": "Não encontrei em {documents} nenhuma passagem com as palavras da sua pergunta.",
        "zh": "在 {documents} 中没有找到包含您问题用词的段落。",
    },
    Text.PAGE: {
        "en": "page {number}",
        "de": "Seite {number}",
        "fr": "page {number}",
        "es": "página {number}",
        "it": "pagina {number}",
        "pt": "página {number}",
        "zh": "第 {number} 页",
    },
    Text.SLIDE: {
        "en": "slide {number}",
        "de": "Folie {number}",
        "fr": "diapositive {number}",
        "es": "diapositiva {number}",
        "it": "diapositiva {number}",
        "pt": "diapositivo {number}",
        "zh": "第 {number} 张幻灯片",
    },
    Text.SHEET: {
        "en": "sheet {number}",
        "de": "Blatt {number}",
        "fr": "feuille {number}",
        "es": "hoja {number}",
        "it": "foglio {number}",
        "pt": "folha {number}",
        "zh": "工作表 {number}",
    },
    Text.SOURCES: {
        "en": "Sources",
        "de": "Quellen",
        "fr": "Sources",
        "es": "Fuentes",
        "it": "Fonti",
        "pt": "Fontes",
        "zh": "来源",
    },
    Text.WROTE: {
        "en": "Written: {documents}.",
        "de": "Geschrieben: {documents}.",
        "fr": "Rédigé : {documents}.",
        "es": "Redactado: {documents}.",
        "it": "Scritto: {documents}.",
        "pt": "Redigido: {documents}.",
        "zh": "已编写：{documents}。",
    },
    Text.SKELETON: {
        "en": "{documents} is a skeleton: what it does with the data must be written by a person, or by a language model.",
        "de": "{documents} ist ein Gerüst: Was mit den Daten geschieht, muss ein Mensch schreiben oder ein Sprachmodell.",
        "fr": "{documents} est un squelette : ce qu’il fait des données doit être écrit par une personne ou par un modèle de langage.",
        "es": "{documents} es un esqueleto: lo que hace con los datos debe escribirlo una persona o un modelo de lenguaje.",
        "it": "{documents} è uno scheletro: che cosa fa con i dati deve scriverlo una persona o un modello linguistico.",
        "pt": "{documents} é um esqueleto: o que faz com os dados tem de ser escrito por uma pessoa ou por um modelo de linguagem.",
        "zh": "{documents} 只是一个骨架：如何处理数据需要由人或语言模型来编写。",
    },
}


def say(text: Text, language: str, **values: object) -> str:
    """The text in that language; in English where we have no other."""
    spoken = _TEXTS[text]
    return spoken.get(language, spoken[DEFAULT]).format(**values)


def listed(names: Iterable[str], language: str) -> str:
    return ("、" if language == "zh" else ", ").join(names)
