"""The batch former: the shell around :class:`headrace.delivery.Lane`.

One thread waits for each thing that can be waited for (a Kafka consumer, a
producer's reports) and puts what it got on one inbox. One loop owns every lane, tells
it what came in, and has its decisions carried out. Nothing here decides what becomes
of a request.
"""
