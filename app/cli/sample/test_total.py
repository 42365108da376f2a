import unittest

from total import total


class Total(unittest.TestCase):
    def test_standard(self):
        self.assertEqual(total([1000, 500]), 1785)

    def test_reduced(self):
        self.assertEqual(total([1000], "reduced"), 1070)


if __name__ == "__main__":
    unittest.main()
